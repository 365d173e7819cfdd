"""The page in a browser: headless Chromium follows a run, and what it draws is what is there."""

from __future__ import annotations

import base64
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from conftest import REPOSITORY, served

import terrace

# Where a picture of the page is left for people to look at.
PICTURE = Path(os.environ.get("TERRACE_PAGE_PICTURE", REPOSITORY / "build/page.png"))
PATIENCE_S = 60


@pytest.fixture(scope="module")
def chromium(request: pytest.FixtureRequest) -> Iterator:
    webdriver = pytest.importorskip("selenium.webdriver")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver:
        # Past pytest, which keeps the words of tests to itself.
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print("SKIPPED: python::test_page: no chromium and chromedriver here; tests/setup.sh installs them", file=sys.stderr)
        pytest.skip("no Chromium")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1500,1240"]
    for flag in flags:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(driver))
    yield started
    started.quit()


@pytest.fixture(scope="module")
def page(run, chromium) -> Iterator:
    with served(run) as said:
        chromium.get(said["page"])
        assert "?token" not in chromium.current_url, "the code does not stay in the address"
        yield Page(chromium)


class Page:
    def __init__(self, driver) -> None:
        self.driver = driver
        self.base = driver.current_url.split("#")[0]

    def until(self, script: str, *arguments):
        """Waits until a script's answer is true, and gives it."""
        from selenium.webdriver.support.ui import WebDriverWait

        try:
            return WebDriverWait(self.driver, PATIENCE_S, poll_frequency=0.05).until(
                lambda driver: driver.execute_script(f"return {script}", *arguments)
            )
        except Exception as error:
            trouble = self.text("#trouble")
            raise AssertionError(f"`{script}` does not come true; the page says: {trouble!r}, {self.complaints()}") from error

    def text(self, selector: str) -> str:
        return self.driver.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def choose(self, array: str) -> None:
        self.driver.get(f"{self.base}#{quote(array, safe='')}")
        self.until("document.querySelector('#viewer-title').textContent === arguments[0]", array)

    def set(self, selector: str, value: str) -> None:
        self.driver.execute_script(
            "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event(e.type === 'range' ? 'input' : 'change'))", selector, value,
        )  # fmt: skip

    def drawn(self, at: str) -> None:
        self.until("document.querySelector('#field').dataset.at === arguments[0]", at)

    def pixels(self) -> np.ndarray:
        """The canvas, cell by cell: red, green, blue, opacity."""
        width, height, text = self.driver.execute_script(
            """
            const canvas = document.querySelector('#field');
            const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            let text = '';
            for (let i = 0; i < data.length; i += 4096) text += String.fromCharCode(...data.subarray(i, i + 4096));
            return [canvas.width, canvas.height, btoa(text)];
            """
        )
        return np.frombuffer(base64.b64decode(text), "u1").reshape(height, width, 4)

    def statistics(self) -> dict[str, float]:
        words = self.text("#statistics").replace("−", "-").replace(",", "").split("\n")
        return {name: float(value.split()[0]) for name, value in zip(words[::2], words[1::2])}

    def complaints(self) -> list:
        """What went wrong in the page, and what its policy forbade."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


def coloured(plane: np.ndarray, name: str, low: float, high: float) -> np.ndarray:
    """The plane as matplotlib's map of this name has it."""
    from matplotlib import colormaps

    index = np.clip(np.floor((plane.astype("f4").astype("f8") - low) * (256 / (high - low))), 0, 255)
    return np.round(colormaps[name](np.nan_to_num(index).astype(int))[..., :3] * 255).astype(int)


def compare(pixels: np.ndarray, plane: np.ndarray, name: str = "viridis") -> None:
    assert pixels.shape[:2] == plane.shape
    there = ~np.isnan(plane)
    assert ((pixels[..., 3] == 255) == there).all(), "what is no number is see-through"
    wanted = coloured(plane, name, float(np.nanmin(plane)), float(np.nanmax(plane)))
    # The tables of d3 and matplotlib differ by rounding at most.
    assert np.abs(pixels[..., :3].astype(int) - wanted)[there].max() <= 1


def wave(step: int) -> np.ndarray:
    z, y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in (20, 60, 80)), indexing="ij")
    distance = np.sqrt(x**2 + y**2 + z**2)
    return (np.cos(18 * distance - step) * np.exp(-2 * distance)).astype("f4")


@pytest.fixture
def run_of_steps(session: terrace.Session) -> Iterator[terrace.Container]:
    container = session.create_container("sound")
    for name in ("pressure", "speed"):
        container.create_array(name, (0, 20, 60, 80), "f4", unlimited=[0], dimensions=["time", "z", "y", "x"], chunks=(1, 20, 60, 80))
    container["notes.txt"] = b"A run that is watched."
    for step in range(2):
        container["pressure"][step] = wave(step)
        container["speed"][step] = abs(wave(step))
    yield container
    session.remove("sound", recursive=True)


def test_the_page_watches_a_step_arrive_and_draws_it(page: Page, run_of_steps: terrace.Container) -> None:
    pressure, speed = run_of_steps["pressure"], run_of_steps["speed"]
    page.choose("sound/pressure")
    page.drawn("1,10,0,0")
    compare(page.pixels(), wave(1)[10])
    # A step that one array has is none yet; when both have it the page draws it by itself.
    pressure[2] = wave(2)
    page.until("document.querySelector('#described').textContent.includes('more is being written')")
    assert page.driver.execute_script("return document.querySelector('#field').dataset.at") == "1,10,0,0"
    speed[2] = abs(wave(2))
    page.drawn("2,10,0,0")
    plane = wave(2)[10]
    compare(page.pixels(), plane)
    found = page.statistics()
    assert found["count"] == plane.size
    for name, value in {"min": plane.min(), "max": plane.max(), "mean": plane.mean(dtype="f8")}.items():
        assert found[name] == pytest.approx(float(value), rel=1e-5, abs=1e-6), name
    assert page.text("#state") == "live" and page.complaints() == []


def test_planes_steps_and_colours_are_chosen(page: Page, run_of_steps: terrace.Container) -> None:
    page.choose("sound/pressure")
    page.drawn("1,10,0,0")
    page.set("#plane", "1,3")
    page.drawn("1,0,30,0")
    compare(page.pixels(), wave(1)[:, 30, :])
    page.set("[data-dimension='0']", "0")
    page.drawn("0,0,30,0")
    assert not page.driver.execute_script("return document.querySelector('#follow').checked"), "whoever goes back stays there"
    page.set("[data-dimension='2']", "7")
    page.drawn("0,0,7,0")
    page.set("#colours", "inferno")
    compare(page.pixels(), wave(0)[:, 7, :], "inferno")
    run_of_steps["pressure"][2] = wave(2)
    run_of_steps["speed"][2] = wave(2)
    page.until("document.querySelector('#described').textContent.startsWith('float32 3 ')")
    assert page.driver.execute_script("return document.querySelector('#field').dataset.at") == "0,0,7,0"
    page.driver.execute_script("document.querySelector('#follow').click()")
    page.drawn("2,0,7,0")
    page.set("#colours", "viridis")
    assert page.complaints() == []


def test_holes_and_arrays_of_one_dimension_are_drawn(page: Page, session: terrace.Session) -> None:
    cells = np.arange(35.0).reshape(5, 7)
    cells[2, 3] = cells[4, 6] = np.nan
    session.create_array("holes", cells.shape, fill_value=np.nan)[:] = cells
    session.create_array("line", 9, "i2")[:] = np.arange(9) ** 2
    page.choose("holes")
    page.until("document.querySelector('#statistics').innerText.includes('33')")
    compare(page.pixels(), cells)
    page.choose("line")
    page.until("document.querySelector('#field').width === 9")
    compare(page.pixels(), (np.arange(9.0) ** 2).reshape(1, 9))
    # Chosen in the list, as a reader does.
    page.until("document.querySelector(\"[data-path='holes']\") !== null")
    page.driver.execute_script("document.querySelector(\"[data-path='holes']\").click()")
    page.until("document.querySelector('#viewer-title').textContent === 'holes'")
    for name in ("holes", "line"):
        del session[name]
    page.until("document.querySelector(\"[data-path='line']\") === null")
    page.complaints()


def test_an_array_that_is_made_anew_is_shown_again(page: Page, session: terrace.Session) -> None:
    def make(values: np.ndarray) -> None:
        session.create_array("again", values.shape, values.dtype)[...] = values

    def gone() -> None:
        page.until("document.querySelector('#trouble').textContent.includes('is not there')")

    def shown(low: float, high: float) -> None:
        page.until("document.querySelector('#field').dataset.range === arguments[0]", f"{low},{high}")
        page.until("document.querySelector('#trouble').textContent === ''")

    page.choose("again")
    gone()
    make(np.arange(12.0).reshape(3, 4))
    shown(0, 11)
    for values, low, high in ((np.full((3, 4), 7.0), 7, 7), (np.arange(60.0).reshape(5, 3, 4), 24, 35), (np.arange(3.0), 0, 2)):
        session.remove("again")
        gone()
        make(values)
        shown(low, high)
    session.rename("again", "elsewhere")
    gone()
    session.rename("elsewhere", "again")
    shown(0, 2)
    # Another one of the same shape, at once.
    session.create_array("next", (3,), np.float64)[...] = [4.0, 5.0, 6.0]
    session.remove("again")
    session.rename("next", "again")
    shown(4, 6)
    session.remove("again")
    # Shorter than what is shown, at whichever moment the page looks.
    steps = session.create_array("steps", (0, 2, 2), np.float64, chunks=(1, 2, 2), unlimited=[0])
    for step in range(3):
        steps[step] = np.full((2, 2), step)
    page.choose("steps")
    shown(2, 2)
    session.remove("steps")
    session.create_array("steps", (0, 2, 2), np.float64, chunks=(1, 2, 2), unlimited=[0])[0] = np.full((2, 2), 9)
    shown(9, 9)
    session.remove("steps")
    for typed in ("%zz", "..", "again//v"):
        page.driver.get(f"{page.base}#{typed}")
        page.until("document.querySelector('#viewer-title').textContent === arguments[0]", typed)
        page.until("document.querySelector('#trouble').textContent !== ''")
        page.until("document.querySelector('#state').textContent === 'live'")
    assert not [said for said in page.complaints() if "Uncaught" in said]


def test_tiers_queues_and_objects_are_shown_live(page: Page, run_of_steps: terrace.Container, session) -> None:
    page.choose("sound/speed")
    page.drawn("1,10,0,0")
    assert page.text(".tier strong") == "ram" and "of 256 MiB" in page.text(".tier small")
    page.until("document.querySelector(\"[data-path='sound/notes.txt']\") !== null")
    assert "float32 2×20×60×80" in page.text("[data-path='sound/pressure']").replace("\n", " ")
    # What is put now is used of the tier a second later.
    before = page.driver.execute_script("return document.querySelector('.tier progress').value")
    session.create_array("weight", 40 << 20, "u1")[:] = 1
    page.until("document.querySelector('.tier progress').value > arguments[0] + 0.1", before)
    page.until("document.querySelectorAll('.uplot').length === 2")
    assert "flushed" in page.text("#queues") and page.text("#root") == str(session.root)
    page.set("#range", "even")
    PICTURE.parent.mkdir(exist_ok=True)
    page.driver.save_screenshot(str(PICTURE))
    del session["weight"]
    assert page.complaints() == []


def ask(page: Page, sql: str) -> None:
    page.driver.execute_script("document.querySelector('#sql').value = arguments[0]; document.querySelector('#ask').requestSubmit()", sql)


def test_a_query_is_answered_by_a_table_and_a_plot_and_can_be_ended(page: Page, session: terrace.Session, query_program) -> None:
    container = session.create_container("asked")
    container.create_array("v", (200,), dimensions=["x"])[...] = np.arange(200.0) ** 2
    ask(page, "SELECT x, v FROM asked WHERE x < 100 ORDER BY x")
    page.until("document.querySelectorAll('#rows tbody tr').length === 100")
    page.until("document.querySelector('#answered').textContent.startsWith('100 rows, ')")
    assert page.text("#rows tbody tr:last-child").split() == ["99", "9801.0"]
    page.until("!document.querySelector('#plot').hidden && document.querySelector('#plot canvas') !== null")
    page.until("document.querySelector('#queries').innerText.includes('WHERE x < 100')")
    # What is wrong is said, and the answer before is gone.
    ask(page, "SELECT nothing FROM asked")
    page.until("document.querySelector('#refused').textContent.includes('nothing')")
    assert page.driver.execute_script("return document.querySelector('#rows').hidden && document.querySelector('#plot').hidden")
    # One that would take hours: ended from the list, and by its own button.
    for button in ("#queries button[data-ends]", "#ends"):
        ask(page, "SELECT count(*) FROM asked a, asked b, asked c, asked d, asked e WHERE a.v + b.v + c.v + d.v + e.v = 1.5")
        page.until("document.querySelector('#queries tr.runs') !== null")
        page.until("document.querySelector(arguments[0]) !== null", button)
        page.driver.execute_script("document.querySelector(arguments[0]).click()", button)
        page.until("!document.querySelector('#asks').disabled && document.querySelector('#queries tr.runs') === null")
    ask(page, "SELECT max(v) AS top FROM asked")
    page.until("document.querySelector('#rows').innerText.includes('39601')")
    # A plan has lines.
    ask(page, "EXPLAIN SELECT max(v) AS top FROM asked")
    page.until("document.querySelector('#rows').innerText.includes('Grid')")
    assert page.driver.execute_script("return [...document.querySelectorAll('#rows td')].some((cell) => cell.innerText.trim().includes('\\n'))")
    page.complaints()


def test_a_narrow_screen_shows_all_of_the_page(page: Page) -> None:
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 420, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    try:
        # Charts are drawn anew a moment later.
        page.until("window.innerWidth === 420 && document.documentElement.scrollWidth <= 420")
        page.driver.save_screenshot(str(PICTURE.with_name("page-narrow.png")))
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
