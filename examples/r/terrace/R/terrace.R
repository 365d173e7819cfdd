# Arrays of Terrace as R has arrays: dimensions in R's order, the innermost first, and the first cell is 1. Python, C and Zarr see the
# same array with its dimensions the other way round.

# The agent of this run, or of the root that is named.
terrace_connect <- function(root = "") .Call(C_connect, root)

# A new array. `dim`: NA for one that grows, which must be the last. `type`: "double" or "integer".
terrace_create <- function(session, name, dim, type = c("double", "integer"), replace = FALSE) {
  type <- match.arg(type)
  .Call(C_create, session, name, as.double(dim), type, replace)
}

terrace_open <- function(session, name, writable = FALSE) .Call(C_open, session, name, writable)

terrace_dim <- function(array) .Call(C_dim, array)

# Puts cells at a place: a vector, a matrix, an array. `dim`: of the region; that of the cells if they have one.
terrace_put <- function(array, cells, start = NULL, dim = base::dim(cells)) {
  if (is.null(dim)) dim <- length(cells)
  if (is.null(start)) start <- rep(1, length(dim))
  invisible(.Call(C_put, array, cells, as.double(start), as.double(dim)))
}

# A region as an R array; all cells without one.
terrace_get <- function(array, start = NULL, dim = NULL) {
  whole <- terrace_dim(array)
  if (is.null(start)) start <- rep(1, length(whole))
  if (is.null(dim)) dim <- whole - start + 1
  .Call(C_get, array, as.double(start), as.double(dim))
}

# Makes the array durable now.
terrace_flush <- function(array) invisible(.Call(C_flush, array))

# Sets a tag: a text, a number or numbers.
terrace_tag <- function(session, name, key, value) invisible(.Call(C_tag, session, name, key, value))
