"""Sums of a Darshan log, as one JSON object: darshan.py LOG. Needs pydarshan (PyPI: darshan).

A file that was read only is input, one that was written only is output, one that was both is intermediate. A record of all ranks
together (rank -1) is as many pieces as there are processes.
"""

import json
import sys
import warnings

warnings.filterwarnings("ignore")


def main() -> dict:
    try:
        import darshan
    except ImportError as error:
        return {"missing": str(error)}
    report = darshan.DarshanReport(sys.argv[1], read_all=False)
    job = report.metadata["job"]
    processes = int(job["nprocs"])
    files: dict = {}
    seconds = {"read": 0.0, "write": 0.0, "meta": 0.0}
    modules = [module for module in ("POSIX", "STDIO") if module in report.modules]
    for module in modules:
        report.mod_read_all_records(module)
        frames = report.records[module].to_df()
        counters, times = frames["counters"], frames["fcounters"]
        for kind in seconds:
            column = f"{module}_F_{kind.upper()}_TIME"
            seconds[kind] += float(times[column].clip(lower=0).sum())
        for row in counters.to_dict("records"):
            name = str(report.name_records.get(row["id"], ""))
            if name in ("<STDIN>", "<STDOUT>", "<STDERR>") or name.startswith(("/proc/", "/sys/", "/dev/")):
                continue
            found = files.setdefault(row["id"], {"read": 0, "written": 0, "end": 0, "pieces": 0})
            found["read"] += max(0, int(row[f"{module}_BYTES_READ"]))
            found["written"] += max(0, int(row[f"{module}_BYTES_WRITTEN"]))
            ends = [int(row[f"{module}_MAX_BYTE_{way}"]) + 1 for way in ("READ", "WRITTEN")]
            found["end"] = max(found["end"], *ends)
            found["pieces"] += processes if int(row["rank"]) < 0 else 1
    sums = {"input": 0, "intermediate": 0, "output": 0, "again": 0, "pieces": 0, "files": 0}
    for found in files.values():
        read, written = found["read"], found["written"]
        if read + written == 0:
            continue
        sums["files"] += 1
        # A piece that moved nothing is none.
        sums["pieces"] += max(1, min(found["pieces"], max(read, written)))
        if written == 0:
            once = min(read, found["end"])
            sums["input"] += once
            sums["again"] += read - once
        elif read == 0:
            sums["output"] += written
        else:
            sums["intermediate"] += written
            sums["again"] += max(0, read - written)
    return {
        "processes": processes,
        "run_s": float(job["run_time"]),
        "seconds": seconds,
        "bytes_read": sum(found["read"] for found in files.values()),
        "bytes_written": sum(found["written"] for found in files.values()),
        "modules": modules,
        **sums,
    }


print(json.dumps(main()))
