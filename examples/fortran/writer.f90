!> A simulation's writer: each step appends a field to an array that grows, while the next step is computed.
program writer
  use, intrinsic :: iso_c_binding
  use terrace
  implicit none
  integer, parameter :: nx = 64, ny = 48, steps = 5
  real(c_double), target :: field(nx, ny), written(nx, ny), seen(nx, ny)
  type(c_ptr) :: session, array, transfer
  integer(c_int64_t), allocatable :: extent(:)
  integer(c_size_t) :: bytes
  integer :: step, x, y

  bytes = c_sizeof(written)
  call check(terrace_connect("", session), "connect")
  call check(terrace_container_create(session, "run", terrace_if_missing), "make the container")
  call check(terrace_array_create(session, "run/temperature", "float64", [integer(c_int64_t) :: nx, ny, 0], &
      terrace_replace, array, unlimited=.true.), "create")
  call check(terrace_tag_put(session, "run/temperature", "units", "K"), "tag")
  call check(terrace_tag_put(session, "run/temperature", "dt", 0.25_c_double), "tag")

  transfer = c_null_ptr
  do step = 1, steps
    do concurrent(x=1:nx, y=1:ny)
      field(x, y) = 1000*step + x + 0.01*y
    end do
    if (c_associated(transfer)) then
      call check(terrace_transfer_wait(transfer, -1.0_c_double), "wait")
      call check(terrace_transfer_close(transfer), "close")
    end if
    written = field
    call check(terrace_transfer_create(array, terrace_put_direction, [integer(c_int64_t) :: 1, 1, step], &
        [integer(c_int64_t) :: nx, ny, 1], c_loc(written), bytes, transfer), "plan the transfer")
    call check(terrace_transfer_start(transfer), "start it")
  end do
  call check(terrace_transfer_wait(transfer, -1.0_c_double), "wait")
  call check(terrace_transfer_close(transfer), "close")

  call check(terrace_array_shape(array, extent), "look at the shape")
  call check(terrace_array_get(array, [integer(c_int64_t) :: 1, 1, 3], [integer(c_int64_t) :: nx, ny, 1], c_loc(seen), bytes), &
      "get")
  print "(a, 3(1x, i0))", "extent", extent
  print "(a, f8.2)", "step 3, cell (2, 4):", seen(2, 4)
  if (terrace_array_get(array, [integer(c_int64_t) :: 1, 1, 6], [integer(c_int64_t) :: nx, ny, 1], c_loc(seen), bytes) &
      /= terrace_out_of_bounds) error stop "a step that is not there was read"
  call check(terrace_array_flush(array), "flush")
  call check(terrace_array_close(array), "close")
  call check(terrace_disconnect(session), "disconnect")

contains

  subroutine check(code, what)
    integer(c_int), intent(in) :: code
    character(*), intent(in) :: what
    if (code == terrace_ok) return
    print "(3a)", what, ": ", terrace_message()
    error stop 1
  end subroutine
end program
