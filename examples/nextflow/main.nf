// 48 samples are simulated and reduced, twelve at a time are merged, one table is made of all: 101 jobs.
//
//   terrace run --config terrace.toml -- nextflow run main.nf -resume
//
// How it works with Terrace, on one node and on several: docs/guide/workflows.md.

process simulate {
    input:
    val i

    output:
    tuple val(i), path("simulated${i}.txt")

    script:
    "seq ${i} 1200000 >simulated${i}.txt"
}

process reduce {
    publishDir 'results', mode: 'copy'

    input:
    tuple val(i), path(simulated)

    output:
    tuple val(i), path("sample${i}.txt")

    script:
    "echo ${i} \$(cksum <${simulated}) >sample${i}.txt"
}

process merge {
    publishDir 'results', mode: 'copy'

    input:
    tuple val(group), path(samples)

    output:
    path "group${group}.txt"

    script:
    "sort -n ${samples} >group${group}.txt"
}

process table {
    publishDir 'results', mode: 'copy'

    input:
    path groups

    output:
    path 'table.txt'

    script:
    "sort -n ${groups} >table.txt"
}

workflow {
    samples = reduce(simulate(Channel.of(0..47)))
    // The same order in every run: a job whose inputs come in another order is another job.
    groups = samples.map { i, file -> tuple(i % 4, file) }.groupTuple(size: 12, sort: { it.name })
    table(merge(groups).toSortedList { it.name })
}
