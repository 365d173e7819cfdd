"""The demo's table and picture."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.image
import matplotlib.pyplot as plt

GIB = 1024**3
NATIVE_COLOUR, TERRACE_COLOUR = "#9a9a9a", "#1f6f8b"


def table(results: dict) -> str:
    """Times, ratios, and what reached the durable tier, as text."""
    lines = []
    for name, title in results["titles"].items():
        lines += [title, f"  {'':<32}{'time':>9}{'faster':>9}{'written':>12}{'requests':>11}{'identical':>12}"]
        for run in (run for run in results["runs"] if run["workflow"] == name):
            traffic = run["traffic"]
            ratio = "" if run["variant"] == "native" else f"{run['speedup']:.2f}x"
            same = "reference" if run["variant"] == "native" else "NO" if run["differences"] else f"{run['checked_files']} files"
            lines.append(
                f"  {run['title']:<32}{run['seconds']:>7.1f} s{ratio:>9}{traffic['written_bytes'] / GIB:>8.2f} GiB"
                f"{traffic['metadata_requests']:>11}{same:>12}"
            )
        lines.append("")
    lines.append("written, requests: bytes and metadata requests that reached the durable tier; identical: checked by SHA-256")
    return "\n".join(lines)


def draw(results: dict, mosaic: Path, picture: Path) -> None:
    """Times as bars, what was written beside them, and the mosaic that came out."""
    limits = results["limits"]
    figure, (bars, image) = plt.subplots(1, 2, figsize=(11, 4), width_ratios=[2.6, 1], layout="constrained")
    position, ticks, labels = 0.0, [], []
    longest = max(run["seconds"] for run in results["runs"])
    for name, title in results["titles"].items():
        bars.text(0, position, title, fontsize=10, fontweight="bold", va="center")
        position += 0.9
        for run in (run for run in results["runs"] if run["workflow"] == name):
            native = run["variant"] == "native"
            bars.barh(position, run["seconds"], 0.72, color=NATIVE_COLOUR if native else TERRACE_COLOUR)
            note = f"{run['seconds']:.1f} s" + ("" if native else f"  ({run['speedup']:.1f}x)")
            note += f"   {run['traffic']['written_bytes'] / GIB:.1f} GiB written"
            bars.text(run["seconds"] + longest * 0.012, position, note, va="center", fontsize=9)
            ticks.append(position)
            labels.append(run["title"])
            position += 0.9
        position += 0.35
    bars.set_yticks(ticks, labels, fontsize=9)
    bars.tick_params(axis="y", length=0)
    bars.invert_yaxis()
    bars.set_xlim(0, longest * 1.34)
    bars.set_xlabel("seconds until everything that is wanted is on the durable tier", fontsize=9)
    bars.spines[["top", "right", "left"]].set_visible(False)
    image.imshow(matplotlib.image.imread(mosaic), cmap="gray")
    image.set_axis_off()
    identical = not any(run["differences"] for run in results["runs"])
    image.set_title("the mosaic, the same bytes either way" if identical else "OUTPUTS DIFFER", fontsize=9)
    figure.suptitle(
        f"Durable tier: {limits['write_mib_s']:.0f} MiB/s write, {limits['read_mib_s']:.0f} MiB/s read,"
        f" {limits['latency_us'] / 1000:.1f} ms a metadata request · {results['machine']['cores']} cores",
        fontsize=10,
    )
    figure.savefig(picture, dpi=130)
    plt.close(figure)
