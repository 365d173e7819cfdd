# A simulation in Julia: each step of a field is appended to an array that grows, and every program of the run sees it at once.
#
#   terrace run -- julia heat.jl
include("Terrace.jl")
using .Terrace
using Printf

function main(steps = 5, nx = 64, ny = 48)
    session = Session()
    heat = create(session, "run/heat", Float64, (nx, ny, nothing); replace = true)
    tag!(session, "run/heat", "units", "K")

    field = fill(300.0, nx, ny)
    field[20:30, 10:15] .= 1000
    for step in 1:steps
        heat[:, :, step] = field
        inner = field[2:nx-1, 2:ny-1]
        around = field[1:nx-2, 2:ny-1] + field[3:nx, 2:ny-1] + field[2:nx-1, 1:ny-2] + field[2:nx-1, 3:ny]
        field[2:nx-1, 2:ny-1] = inner + 0.1 * (around - 4 * inner)
    end

    # What was put is there, for this program and for all others of the run.
    first = StagedArray(session, "run/heat")[20:30, 10:15, 1]
    @assert all(first .== 1000) && tag(session, "run/heat", "units") == "K"
    @printf("%d steps of %d x %d, the hottest cell of the last one has %.3f K\n", size(heat, 3), nx, ny, maximum(heat[:, :, end]))
end

main()
