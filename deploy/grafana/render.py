"""Draws the dashboard as Grafana lays it out, from what tests/e2e/dashboard.py --record kept of a live server. Needs
matplotlib. usage: render.py RECORD.json PICTURE.png"""
import io
import json
import sys

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

COLOURS = ["#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#c0d8ff"]
BACK, PANEL, TEXT, GRID = "#111217", "#181b1f", "#ccccdc", "#2c2f35"
CELL_WIDTH, CELL_HEIGHT = 0.5, 0.235  # inches of a grid unit
LEGEND_WIDTH = 60  # characters of a legend's line
# unit -> [(factor, suffix)]: the first factor that the top of the axis reaches, else the last
UNITS = {
    "s": [(60, " min"), (1, " s"), (1e-3, " ms"), (1e-6, " µs")],
    "µs": [(1e6, " s"), (1e3, " ms"), (1, " µs")],
    "bytes": [(1 << 30, " GiB"), (1 << 20, " MiB"), (1 << 10, " KiB"), (1, " B")],
    "percentunit": [(0.01, "%")], "reqps": [(1, " req/s")], "ops": [(1, " ops/s")], "watt": [(1, " W")],
    "short": [(1e6, " Mil"), (1e3, " K"), (1, "")],
}


def scale(unit, top):
    suffix = unit.removeprefix("suffix:")
    rows = UNITS.get(unit, [(1e3, " K" + suffix), (1, suffix)])
    return next((row for row in rows if top >= row[0]), rows[-1])


def draw(axes, panel, lines):
    field = panel["fieldConfig"]["defaults"]
    axes.set_facecolor(PANEL)
    axes.set_title(panel["title"], loc="left", color=TEXT, fontsize=8, fontweight="bold", pad=4)
    axes.tick_params(colors=TEXT, labelsize=6, length=0)
    axes.grid(color=GRID, linewidth=0.5)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if not lines:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "No data", color=TEXT, fontsize=9, ha="center", transform=axes.transAxes)
        return
    start = min(t for _, samples in lines for t, _ in samples)
    top = field.get("max") or max(v for _, samples in lines for _, v in samples) * 1.1 or 1
    factor, suffix = scale(field["unit"], top)
    for (legend, samples), colour in zip(lines, COLOURS * 3):
        x, y = [t - start for t, _ in samples], [v / factor for _, v in samples]
        axes.plot(x, y, color=colour, linewidth=1, label=legend, marker="." if len(x) == 1 else None)
    axes.set_ylim(0, top / factor * 1.02)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.4g}{suffix}"))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.0f} s"))
    columns = max(1, LEGEND_WIDTH // (max(len(legend) for legend, _ in lines) + 4))
    axes.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.1), ncol=min(columns, len(lines)), fontsize=6,
                frameon=False, labelcolor=TEXT, handlelength=1, columnspacing=1, handletextpad=0.4, borderaxespad=0)


def main():
    with open(sys.argv[1]) as file:
        shown = json.load(file)
    height = max(s["panel"]["gridPos"]["y"] + s["panel"]["gridPos"]["h"] for s in shown)
    figure = Figure(figsize=(24 * CELL_WIDTH, height * CELL_HEIGHT), facecolor=BACK)
    for entry in shown:
        panel, grid = entry["panel"], entry["panel"]["gridPos"]
        if panel["type"] == "row":
            figure.text(0.004, 1 - (grid["y"] + 0.7) / height, "▾ " + panel["title"], color=TEXT, fontsize=9)
            continue
        box = (grid["x"] + 1) / 24, 1 - (grid["y"] + grid["h"] - 1.8) / height
        draw(figure.add_axes((*box, (grid["w"] - 1.2) / 24, (grid["h"] - 2.8) / height)), panel, entry["series"])
    picture = io.BytesIO()
    figure.savefig(picture, dpi=100)
    Image.open(picture).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(sys.argv[2], optimize=True)


main()
