#!/usr/bin/env cwl-runner
# 48 samples are simulated and reduced, and one table is made of all: 97 jobs.
#
#   terrace run --config terrace.toml -- cwltool --parallel --parallel-max 4 --cachedir cache --outdir results workflow.cwl samples.yml
#
# How it works with Terrace, on one node and on several: docs/guide/workflows.md.
cwlVersion: v1.2
class: Workflow
requirements:
  ScatterFeatureRequirement: {}

inputs:
  samples: int[]
outputs:
  table:
    type: File
    outputSource: table/merged

steps:
  simulate:
    run: simulate.cwl
    scatter: sample
    in: {sample: samples}
    out: [series]
  reduce:
    run: reduce.cwl
    scatter: series
    in: {series: simulate/series}
    out: [row]
  table:
    run: table.cwl
    in: {rows: reduce/row}
    out: [merged]
