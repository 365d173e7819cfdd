# A simulation in R: each step of a field is appended to an array that grows, and every program of the run sees it at once.
#
#   R CMD INSTALL terrace                     # finds terrace.h by pkg-config
#   terrace run -- Rscript heat.R
library(terrace)

steps <- 5
nx <- 64
ny <- 48
session <- terrace_connect()
heat <- terrace_create(session, "run/heat", c(nx, ny, NA), replace = TRUE)
terrace_tag(session, "run/heat", "units", "K")

field <- matrix(300, nx, ny)
field[20:30, 10:15] <- 1000
for (step in seq_len(steps)) {
  terrace_put(heat, field, start = c(1, 1, step), dim = c(nx, ny, 1))
  inner <- field[2:(nx - 1), 2:(ny - 1)]
  around <- field[1:(nx - 2), 2:(ny - 1)] + field[3:nx, 2:(ny - 1)] + field[2:(nx - 1), 1:(ny - 2)] + field[2:(nx - 1), 3:ny]
  field[2:(nx - 1), 2:(ny - 1)] <- inner + 0.1 * (around - 4 * inner)
}

# What was put is there, for this program and for all others of the run.
first <- terrace_get(terrace_open(session, "run/heat"), start = c(20, 10, 1), dim = c(11, 6, 1))
stopifnot(first == 1000)
cat(sprintf("%d steps of %d x %d, the hottest cell of the last one has %.3f K\n", steps, nx, ny,
            max(terrace_get(heat, start = c(1, 1, steps), dim = c(nx, ny, 1)))))
