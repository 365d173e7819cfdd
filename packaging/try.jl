# Each claim of examples/julia/Terrace.jl, with the library that is installed (scripts/try-packages.sh).
include("Terrace.jl")
using .Terrace
using Test

function refused(code, words, call)
    error = try
        call()
        nothing
    catch caught
        caught
    end
    @test error isa TerraceError
    @test error.code == code
    @test occursin(words, sprint(showerror, error))
end

@testset "claims" begin
    session = Session()
    for T in (Bool, Int8, Int32, Int64, UInt16, Float16, Float32, Float64, ComplexF64)
        array = create(session, "types/$T", T, (3, 2))
        cells = reshape(T[iseven(i) for i in 1:6], 3, 2)
        array[:, :] = cells
        opened = StagedArray(session, "types/$T")
        @test eltype(opened) == T && ndims(opened) == 2 && opened[:, :] == cells
    end

    numbers = create(session, "numbers", Int32, (10, 6))
    all_of_them = reshape(Int32.(1:60), 10, 6)
    numbers[:, :] = all_of_them
    @test size(numbers) == (10, 6) && numbers[4, 3] === all_of_them[4, 3]
    @test numbers[2:3:10, 5] == all_of_them[2:3:10, 5] && numbers[end, :] == all_of_them[end, :]
    numbers[1:2, 1:2] = 7
    @test numbers[1:3, 1] == [7, 7, 3]
    numbers[1:2, 1] = [1.0, 2.0]
    @test numbers[1:2, 1] == [1, 2]
    @test_throws InexactError numbers[1, 1] = 1.5
    @test_throws DimensionMismatch numbers[1:2, 1] = [1, 2, 3]
    @test_throws ArgumentError numbers[1:2]
    @test_throws BoundsError numbers[0, 1]
    refused(:OUT_OF_BOUNDS, "has 10 cells", () -> numbers[1:11, 1])
    refused(:WRONG_KIND, "numbers", () -> StagedArray(session, "numbers")[1, 1] = 1)

    steps = create(session, "steps", Float64, (4, nothing))
    steps[:, 3] = [1, 2, 3, 4]
    @test size(steps) == (4, 3) && steps[:, 1] == zeros(4) && steps[:, end] == 1:4
    flush_array(steps)
    @test isfile("steps/zarr.json")

    for (key, value) in (("text", "é"), ("integer", -3), ("real", 0.5), ("flag", true))
        tag!(session, "numbers", key, value)
        @test tag(session, "numbers", key) === value || tag(session, "numbers", key) == value
    end
    refused(:NOT_FOUND, "nothing", () -> StagedArray(session, "nothing"))
    refused(:NOT_FOUND, "colour", () -> tag(session, "numbers", "colour"))
    refused(:EXISTS, "numbers", () -> create(session, "numbers", Int32, (1,)))
    @test_throws ArgumentError create(session, "wide", Int128, (1,))
    close(numbers)
    refused(:BAD_HANDLE, "", () -> numbers[:, :])
    close(session)
    refused(:BAD_HANDLE, "", () -> StagedArray(session, "steps"))
end
