# Every claim about the R example's package: what is put is got, dimensions lie as R has them, and what can't be is refused by name.
library(terrace)

refused <- function(call, ...) {
  said <- tryCatch({ force(call); "nothing" }, error = conditionMessage)
  for (word in c(...)) if (!grepl(word, said, fixed = TRUE)) stop(sprintf("\"%s\" is not said, but: %s", word, said))
}

session <- terrace_connect()
cube <- array(as.double(1:24), c(2, 3, 4))
a <- terrace_create(session, "d/cube", dim(cube))
terrace_put(a, cube)
stopifnot(identical(terrace_get(a), cube), identical(terrace_dim(a), c(2, 3, 4)))
stopifnot(identical(terrace_get(a, c(2, 1, 3), c(1, 3, 2)), cube[2, 1:3, 3:4, drop = FALSE]))
terrace_put(a, c(100, 200), start = c(1, 2, 2), dim = c(2, 1, 1))
cube[, 2, 2] <- c(100, 200)
stopifnot(identical(terrace_get(terrace_open(session, "d/cube")), cube))
# Integers are doubles where the array has these, and not the other way round.
terrace_put(a, 7:8, dim = c(2, 1, 1))
stopifnot(terrace_get(a, dim = c(2, 1, 1)) == 7:8)

i <- terrace_create(session, "d/series", c(2, NA), "integer")
for (step in 1:3) terrace_put(i, c(step, -step), c(1, step), c(2, 1))
stopifnot(identical(terrace_get(i), rbind(1:3, -(1:3))))
terrace_tag(session, "d/series", "units", "K")
terrace_tag(session, "d/series", "dt", 0.25)
terrace_tag(session, "d/series", "range", c(1.5, 2))
terrace_flush(i)

refused(terrace_put(i, c(1.5, 2), c(1, 1), c(2, 1)), "integer")
refused(terrace_put(i, c(1L, NA), c(1, 1), c(2, 1)), "NA")
refused(terrace_put(a, 1:3, dim = c(2, 1, 1)), "3 cells for a region of 2")
refused(terrace_get(a, c(0, 1, 1), c(1, 1, 1)), "start must be whole numbers from 1 on")
refused(terrace_get(a, c(1, 1, 1.5), c(1, 1, 1)), "start must be whole")
refused(terrace_get(a, c(1, 1), c(1, 1, 1)), "different lengths")
refused(terrace_get(a, c(2, 1, 1), c(2, 1, 1)), "which has 2 cells")
refused(terrace_open(session, "none"), "none")
refused(terrace_create(session, "d/cube", 1), "d/cube")
refused(terrace_create(session, "d/x", c(NA, 2)), "dim must be whole numbers")
refused(terrace_put(terrace_open(session, "d/cube"), cube), "d/cube")
refused(terrace_put(session, 1), "this is no terrace_array")
refused(terrace_connect(c("a", "b")), "root must be one text")
cat("all claims hold\n")
