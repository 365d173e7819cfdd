"""A program of ADIOS2 that writes steps by the engine `terrace`, and another that reads them while they come. Argument: write or read."""

import sys

import adios2
import numpy as np
import terrace

NX, NY, STEPS = 6, 4, 5
session = terrace.connect()
adios = adios2.Adios()


def io(name, stream):
    made = adios.declare_io(name)
    made.set_engine("Plugin")
    made.set_parameters({"PluginName": "terrace", "PluginLibrary": "terrace_adios2", "Stream": stream})
    return made


def field(step):
    return np.arange(NX * NY, dtype="f8").reshape(NX, NY) + 100 * step


def refused(call, *words):
    try:
        call()
    except Exception as error:  # ADIOS2's bindings pass on C++'s
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"{words}: it was not refused")


def write():
    out = io("out", "run.bp")
    heat = out.define_variable("fields/heat", np.zeros((NX, NY)), [NX, NY], [0, 0], [NX, NY])
    time = out.define_variable("time", np.array(0.0))
    count = out.define_variable("count", np.zeros(3, "i4"), [3], [0], [3])
    mesh = out.define_variable("mesh", np.zeros(NX, "f4"), [NX], [0], [NX])
    out.define_attribute("title", "a stream")
    out.define_attribute("fields/heat/units", "K")
    out.define_attribute("range", np.array([0.5, 9.5]))
    with out.open("run.bp", adios2.bindings.Mode.Write) as stream:
        for step in range(STEPS):
            stream.begin_step()
            # Two parts, as two ranks put them; one when it is asked for, one at the step's end.
            whole, half = field(step), NX // 2
            heat.set_selection([[0, 0], [half, NY]])
            stream.put(heat, np.ascontiguousarray(whole[:half]), adios2.bindings.Mode.Sync)
            heat.set_selection([[half, 0], [NX - half, NY]])
            rest = np.ascontiguousarray(whole[half:])
            stream.put(heat, rest, adios2.bindings.Mode.Deferred)
            stream.put(time, np.array(0.25 * step))
            stream.put(count, np.array([step, -step, 7], "i4"))
            if step == 0:
                stream.put(mesh, np.linspace(0, 1, NX, dtype="f4"))
            stream.end_step()
            # Every program of the run sees what was put.
            assert (session["run.bp/fields/heat"][step] == whole).all()
            print("written", step, flush=True)
            sys.stdin.readline()
    assert session["run.bp/time"][...].tolist() == [0.25 * step for step in range(STEPS)]
    assert session["run.bp/count"].dtype == "i4" and session["run.bp/mesh"].shape == (1, NX)
    assert session.tags_of("run.bp")["title"] == "a stream" and session.tags_of("run.bp")["range"] == [0.5, 9.5]
    assert session["run.bp/fields/heat"].tags["units"] == "K"
    # What arrays can't be.
    bad = io("bad", "bad.bp")
    local = bad.define_variable("local", np.zeros(3), [], [], [3])
    text = bad.define_variable("text", "some")
    late = bad.define_variable("late", np.zeros(3), [3], [0], [3])
    with bad.open("bad.bp", adios2.bindings.Mode.Write) as stream:
        stream.begin_step()
        refused(lambda: stream.put(local, np.zeros(3), adios2.bindings.Mode.Sync), "local", "give a shape")
        refused(lambda: stream.put(text, "some"), "text", "numbers")
        stream.end_step()
        stream.begin_step()
        refused(lambda: stream.put(late, np.zeros(3), adios2.bindings.Mode.Sync), "late", "step 0 has none")
        stream.end_step()
    assert not session.exists("bad.bp/local") and not session.exists("bad.bp/text")


def read():
    into = io("in", "run.bp")
    with into.open("run.bp", adios2.bindings.Mode.Read) as stream:
        for step in range(STEPS):
            assert stream.begin_step(adios2.bindings.StepMode.Read, 60.0) == adios2.bindings.StepStatus.OK
            assert stream.current_step() == step
            heat = into.inquire_variable("fields/heat")
            assert heat.shape() == [NX, NY]
            found = np.zeros((NX, NY))
            stream.get(heat, found, adios2.bindings.Mode.Sync)
            assert (found == field(step)).all(), found
            heat.set_selection([[1, 2], [3, 2]])
            part = np.zeros((3, 2))
            stream.get(heat, part, adios2.bindings.Mode.Deferred)
            stream.perform_gets()
            assert (part == field(step)[1:4, 2:4]).all(), part
            heat.set_selection([[0, 0], [NX, NY]])
            time = np.zeros(1)
            stream.get(into.inquire_variable("time"), time, adios2.bindings.Mode.Sync)
            assert time[0] == 0.25 * step
            assert bool(into.inquire_variable("mesh")) == (step == 0)
            stream.end_step()
            print("read", step, flush=True)
        assert stream.begin_step(adios2.bindings.StepMode.Read, 60.0) == adios2.bindings.StepStatus.EndOfStream


{"write": write, "read": read}[sys.argv[1]]()
print("all claims hold")
