!> Terrace's objects for Fortran programs, over the C calls of terrace.h.
!>
!>   gfortran writer.f90 $(pkg-config --cflags --libs terrace) $(pkg-config --variable=includedir terrace)/terrace.f90
!>
!> Calls return 0, or one of the codes of terrace.h; terrace_message() then says why. Dimensions are told in Fortran's order,
!> the innermost first, as `shape(array)` does; the C, Python and Zarr views of the same array have them the other way round.
!> Handles and results of failed calls mean nothing.
module terrace
  use, intrinsic :: iso_c_binding
  implicit none
  private

  integer(c_int), parameter, public :: terrace_ok = 0, terrace_not_found = 1, terrace_exists = 2, terrace_wrong_kind = 3, &
      terrace_invalid = 4, terrace_out_of_bounds = 5, terrace_no_space = 6, terrace_busy = 7, terrace_no_agent = 8, &
      terrace_denied = 9, terrace_protocol = 10, terrace_system = 11, terrace_damaged = 12, terrace_bad_handle = 13, &
      terrace_internal = 14
  integer(c_int), parameter, public :: terrace_new = 0, terrace_replace = 1, terrace_if_missing = 2
  integer(c_int), parameter, public :: terrace_put_direction = 0, terrace_get_direction = 1
  integer(c_int), parameter, public :: terrace_read_lock = 0, terrace_write_lock = 1
  integer, parameter, public :: terrace_rank_max = 8

  type, bind(c) :: c_spec
    type(c_ptr) :: data_type
    integer(c_int) :: rank
    integer(c_int64_t) :: shape(terrace_rank_max)
    logical(c_bool) :: unlimited(terrace_rank_max)
    integer(c_int64_t) :: chunks(terrace_rank_max)
    type(c_ptr) :: fill
    type(c_ptr) :: dimensions(terrace_rank_max)
    integer(c_int) :: placement
  end type

  type, bind(c) :: c_region
    integer(c_int) :: rank
    integer(c_int64_t) :: offset(terrace_rank_max), count(terrace_rank_max), stride(terrace_rank_max)
  end type

  type, bind(c) :: c_tag
    integer(c_int) :: tag_type
    logical(c_bool) :: boolean
    integer(c_int64_t) :: integer
    real(c_double) :: real
    type(c_ptr) :: text, integers, reals
    integer(c_size_t) :: count
  end type

  interface
    function c_error() bind(c, name="terrace_error") result(text)
      import; type(c_ptr) :: text
    end function
    function c_connect(target, session) bind(c, name="terrace_connect") result(code)
      import; character(c_char), intent(in) :: target(*); type(c_ptr), intent(out) :: session; integer(c_int) :: code
    end function
    function c_container_create(session, name, how) bind(c, name="terrace_container_create") result(code)
      import; type(c_ptr), value :: session; character(c_char), intent(in) :: name(*)
      integer(c_int), value :: how; integer(c_int) :: code
    end function
    function c_flush(session, name) bind(c, name="terrace_flush") result(code)
      import; type(c_ptr), value :: session; character(c_char), intent(in) :: name(*); integer(c_int) :: code
    end function
    function c_remove(session, name, with_contents) bind(c, name="terrace_remove") result(code)
      import; type(c_ptr), value :: session; character(c_char), intent(in) :: name(*)
      logical(c_bool), value :: with_contents; integer(c_int) :: code
    end function
    function c_wait_for(session, name, seconds, info) bind(c, name="terrace_wait_for") result(code)
      import; type(c_ptr), value :: session; character(c_char), intent(in) :: name(*)
      real(c_double), value :: seconds; type(c_ptr), value :: info; integer(c_int) :: code
    end function
    function c_array_create(session, name, spec, how, array) bind(c, name="terrace_array_create") result(code)
      import; type(c_ptr), value :: session; character(c_char), intent(in) :: name(*); type(c_spec), intent(in) :: spec
      integer(c_int), value :: how; type(c_ptr), intent(out) :: array; integer(c_int) :: code
    end function
    function c_array_open(session, name, writable, array) bind(c, name="terrace_array_open") result(code)
      import; type(c_ptr), value :: session; character(c_char), intent(in) :: name(*)
      logical(c_bool), value :: writable; type(c_ptr), intent(out) :: array; integer(c_int) :: code
    end function
    function c_array_shape(array, rank, shape) bind(c, name="terrace_array_shape") result(code)
      import; type(c_ptr), value :: array; integer(c_int), intent(out) :: rank
      integer(c_int64_t), intent(out) :: shape(*); integer(c_int) :: code
    end function
    function c_array_put(array, region, cells, bytes) bind(c, name="terrace_array_put") result(code)
      import; type(c_ptr), value :: array, cells; type(c_region), intent(in) :: region
      integer(c_size_t), value :: bytes; integer(c_int) :: code
    end function
    function c_array_get(array, region, cells, bytes) bind(c, name="terrace_array_get") result(code)
      import; type(c_ptr), value :: array, cells; type(c_region), intent(in) :: region
      integer(c_size_t), value :: bytes; integer(c_int) :: code
    end function
    function c_array_lock(array, region, mode, seconds, lock) bind(c, name="terrace_array_lock") result(code)
      import; type(c_ptr), value :: array; type(c_region), intent(in) :: region; integer(c_int), value :: mode
      real(c_double), value :: seconds; type(c_ptr), intent(out) :: lock; integer(c_int) :: code
    end function
    function c_transfer_create(array, direction, region, cells, bytes, transfer) &
        bind(c, name="terrace_transfer_create") result(code)
      import; type(c_ptr), value :: array, cells; integer(c_int), value :: direction; type(c_region), intent(in) :: region
      integer(c_size_t), value :: bytes; type(c_ptr), intent(out) :: transfer; integer(c_int) :: code
    end function
    function c_tag_put(session, name, key, tag) bind(c, name="terrace_tag_put") result(code)
      import; type(c_ptr), value :: session; character(c_char), intent(in) :: name(*), key(*)
      type(c_tag), intent(in) :: tag; integer(c_int) :: code
    end function
    function c_bytes_create(session, name, how, bytes) bind(c, name="terrace_bytes_create") result(code)
      import; type(c_ptr), value :: session; character(c_char), intent(in) :: name(*)
      integer(c_int), value :: how; type(c_ptr), intent(out) :: bytes; integer(c_int) :: code
    end function
    function c_bytes_open(session, name, writable, bytes) bind(c, name="terrace_bytes_open") result(code)
      import; type(c_ptr), value :: session; character(c_char), intent(in) :: name(*)
      logical(c_bool), value :: writable; type(c_ptr), intent(out) :: bytes; integer(c_int) :: code
    end function

    ! These need nothing done to their arguments.
    function terrace_disconnect(session) bind(c) result(code)
      import; type(c_ptr), value :: session; integer(c_int) :: code
    end function
    function terrace_array_flush(array) bind(c) result(code)
      import; type(c_ptr), value :: array; integer(c_int) :: code
    end function
    function terrace_array_close(array) bind(c) result(code)
      import; type(c_ptr), value :: array; integer(c_int) :: code
    end function
    function terrace_lock_release(lock) bind(c) result(code)
      import; type(c_ptr), value :: lock; integer(c_int) :: code
    end function
    function terrace_transfer_start(transfer) bind(c) result(code)
      import; type(c_ptr), value :: transfer; integer(c_int) :: code
    end function
    function terrace_transfer_test(transfer, done) bind(c) result(code)
      import; type(c_ptr), value :: transfer; logical(c_bool), intent(out) :: done; integer(c_int) :: code
    end function
    function terrace_transfer_wait(transfer, seconds) bind(c) result(code)
      import; type(c_ptr), value :: transfer; real(c_double), value :: seconds; integer(c_int) :: code
    end function
    function terrace_transfer_close(transfer) bind(c) result(code)
      import; type(c_ptr), value :: transfer; integer(c_int) :: code
    end function
    function terrace_bytes_write(bytes, position, buffer, count) bind(c) result(code)
      import; type(c_ptr), value :: bytes, buffer; integer(c_int64_t), value :: position
      integer(c_size_t), value :: count; integer(c_int) :: code
    end function
    function terrace_bytes_read(bytes, position, buffer, count, got) bind(c) result(code)
      import; type(c_ptr), value :: bytes, buffer, got; integer(c_int64_t), value :: position
      integer(c_size_t), value :: count; integer(c_int) :: code
    end function
    function terrace_bytes_flush(bytes) bind(c) result(code)
      import; type(c_ptr), value :: bytes; integer(c_int) :: code
    end function
    function terrace_bytes_close(bytes) bind(c) result(code)
      import; type(c_ptr), value :: bytes; integer(c_int) :: code
    end function
    function strlen(text) bind(c) result(length)
      import; type(c_ptr), value :: text; integer(c_size_t) :: length
    end function
  end interface

  !> Sets a tag, whose value is a text, an integer or a real.
  interface terrace_tag_put
    module procedure put_text, put_integer, put_real
  end interface

  public :: terrace_message, terrace_connect, terrace_disconnect, terrace_container_create, terrace_flush, terrace_remove, &
      terrace_wait_for, terrace_array_create, terrace_array_open, terrace_array_shape, terrace_array_put, &
      terrace_array_get, terrace_array_flush, terrace_array_close, terrace_array_lock, terrace_lock_release, &
      terrace_transfer_create, terrace_transfer_start, terrace_transfer_test, terrace_transfer_wait, &
      terrace_transfer_close, terrace_tag_put, terrace_bytes_create, terrace_bytes_open, terrace_bytes_write, &
      terrace_bytes_read, terrace_bytes_flush, terrace_bytes_close

contains

  !> What the last call of this thread that failed says.
  function terrace_message() result(message)
    character(:), allocatable :: message
    character(c_char), pointer :: bytes(:)
    type(c_ptr) :: text
    integer :: at
    text = c_error()
    call c_f_pointer(text, bytes, [strlen(text)])
    allocate (character(size(bytes)) :: message)
    do at = 1, size(bytes)
      message(at:at) = bytes(at)
    end do
  end function

  !> A session with the agent of a root: its path, or "" for that of the run which the program belongs to.
  function terrace_connect(target, session) result(code)
    character(*), intent(in) :: target
    type(c_ptr), intent(out) :: session
    integer(c_int) :: code
    code = c_connect(trim(target)//c_null_char, session)
  end function

  function terrace_container_create(session, name, how) result(code)
    type(c_ptr), intent(in) :: session
    character(*), intent(in) :: name
    integer(c_int), intent(in) :: how
    integer(c_int) :: code
    code = c_container_create(session, trim(name)//c_null_char, how)
  end function

  !> Makes durable in the root what lies at and below this name.
  function terrace_flush(session, name) result(code)
    type(c_ptr), intent(in) :: session
    character(*), intent(in) :: name
    integer(c_int) :: code
    code = c_flush(session, trim(name)//c_null_char)
  end function

  function terrace_remove(session, name, with_contents) result(code)
    type(c_ptr), intent(in) :: session
    character(*), intent(in) :: name
    logical, intent(in) :: with_contents
    integer(c_int) :: code
    code = c_remove(session, trim(name)//c_null_char, logical(with_contents, c_bool))
  end function

  !> Waits until there is an object of this name; less than 0 seconds: for as long as it takes.
  function terrace_wait_for(session, name, seconds) result(code)
    type(c_ptr), intent(in) :: session
    character(*), intent(in) :: name
    real(c_double), intent(in) :: seconds
    integer(c_int) :: code
    code = c_wait_for(session, trim(name)//c_null_char, seconds, c_null_ptr)
  end function

  !> A new array of this extent; `unlimited`: its outermost (last) dimension grows with what is put.
  function terrace_array_create(session, name, data_type, extent, how, array, unlimited) result(code)
    type(c_ptr), intent(in) :: session
    character(*), intent(in) :: name, data_type
    integer(c_int64_t), intent(in) :: extent(:)
    integer(c_int), intent(in) :: how
    type(c_ptr), intent(out) :: array
    logical, intent(in), optional :: unlimited
    integer(c_int) :: code
    character(:), allocatable, target :: type_name
    type(c_spec) :: spec
    type_name = trim(data_type)//c_null_char
    spec = c_spec(c_loc(type_name), size(extent), 0, .false._c_bool, 0, c_null_ptr, c_null_ptr, 0)
    call turn(extent, spec%shape)
    if (present(unlimited)) spec%unlimited(1) = logical(unlimited, c_bool)
    code = c_array_create(session, trim(name)//c_null_char, spec, how, array)
  end function

  function terrace_array_open(session, name, writable, array) result(code)
    type(c_ptr), intent(in) :: session
    character(*), intent(in) :: name
    logical, intent(in) :: writable
    type(c_ptr), intent(out) :: array
    integer(c_int) :: code
    code = c_array_open(session, trim(name)//c_null_char, logical(writable, c_bool), array)
  end function

  !> The extent as it is now.
  function terrace_array_shape(array, extent) result(code)
    type(c_ptr), intent(in) :: array
    integer(c_int64_t), allocatable, intent(out) :: extent(:)
    integer(c_int) :: code, rank
    integer(c_int64_t) :: shape(terrace_rank_max)
    code = c_array_shape(array, rank, shape)
    if (code /= terrace_ok) rank = 0
    extent = shape(rank:1:-1)
  end function

  !> Puts the cells of a region: `first(d)` counts from 1. `cells`: c_loc of them; `bytes`: how many those are.
  function terrace_array_put(array, first, extent, cells, bytes) result(code)
    type(c_ptr), intent(in) :: array, cells
    integer(c_int64_t), intent(in) :: first(:), extent(:)
    integer(c_size_t), intent(in) :: bytes
    integer(c_int) :: code
    code = c_array_put(array, region_of(first, extent), cells, bytes)
  end function

  function terrace_array_get(array, first, extent, cells, bytes) result(code)
    type(c_ptr), intent(in) :: array, cells
    integer(c_int64_t), intent(in) :: first(:), extent(:)
    integer(c_size_t), intent(in) :: bytes
    integer(c_int) :: code
    code = c_array_get(array, region_of(first, extent), cells, bytes)
  end function

  function terrace_array_lock(array, first, extent, mode, seconds, lock) result(code)
    type(c_ptr), intent(in) :: array
    integer(c_int64_t), intent(in) :: first(:), extent(:)
    integer(c_int), intent(in) :: mode
    real(c_double), intent(in) :: seconds
    type(c_ptr), intent(out) :: lock
    integer(c_int) :: code
    code = c_array_lock(array, region_of(first, extent), mode, seconds, lock)
  end function

  !> A transfer of a region; the cells must stay until it was waited for.
  function terrace_transfer_create(array, direction, first, extent, cells, bytes, transfer) result(code)
    type(c_ptr), intent(in) :: array, cells
    integer(c_int), intent(in) :: direction
    integer(c_int64_t), intent(in) :: first(:), extent(:)
    integer(c_size_t), intent(in) :: bytes
    type(c_ptr), intent(out) :: transfer
    integer(c_int) :: code
    code = c_transfer_create(array, direction, region_of(first, extent), cells, bytes, transfer)
  end function

  function terrace_bytes_create(session, name, how, bytes) result(code)
    type(c_ptr), intent(in) :: session
    character(*), intent(in) :: name
    integer(c_int), intent(in) :: how
    type(c_ptr), intent(out) :: bytes
    integer(c_int) :: code
    code = c_bytes_create(session, trim(name)//c_null_char, how, bytes)
  end function

  function terrace_bytes_open(session, name, writable, bytes) result(code)
    type(c_ptr), intent(in) :: session
    character(*), intent(in) :: name
    logical, intent(in) :: writable
    type(c_ptr), intent(out) :: bytes
    integer(c_int) :: code
    code = c_bytes_open(session, trim(name)//c_null_char, logical(writable, c_bool), bytes)
  end function

  function put_text(session, name, key, value) result(code)
    type(c_ptr), intent(in) :: session
    character(*), intent(in) :: name, key, value
    integer(c_int) :: code
    character(:), allocatable, target :: text
    text = trim(value)//c_null_char
    code = put_tag(session, name, key, &
        c_tag(4, .false._c_bool, 0, 0, c_loc(text), c_null_ptr, c_null_ptr, 0))
  end function

  function put_integer(session, name, key, value) result(code)
    type(c_ptr), intent(in) :: session
    character(*), intent(in) :: name, key
    integer(c_int64_t), intent(in) :: value
    integer(c_int) :: code
    code = put_tag(session, name, key, &
        c_tag(2, .false._c_bool, value, 0, c_null_ptr, c_null_ptr, c_null_ptr, 0))
  end function

  function put_real(session, name, key, value) result(code)
    type(c_ptr), intent(in) :: session
    character(*), intent(in) :: name, key
    real(c_double), intent(in) :: value
    integer(c_int) :: code
    code = put_tag(session, name, key, &
        c_tag(3, .false._c_bool, 0, value, c_null_ptr, c_null_ptr, c_null_ptr, 0))
  end function

  function put_tag(session, name, key, tag) result(code)
    type(c_ptr), intent(in) :: session
    character(*), intent(in) :: name, key
    type(c_tag), intent(in) :: tag
    integer(c_int) :: code
    code = c_tag_put(session, trim(name)//c_null_char, trim(key)//c_null_char, tag)
  end function

  !> From Fortran's order of dimensions to C's.
  subroutine turn(from, to)
    integer(c_int64_t), intent(in) :: from(:)
    integer(c_int64_t), intent(inout) :: to(terrace_rank_max)
    integer :: rank
    rank = min(size(from), terrace_rank_max)
    to(1:rank) = from(rank:1:-1)
  end subroutine

  function region_of(first, extent) result(region)
    integer(c_int64_t), intent(in) :: first(:), extent(:)
    type(c_region) :: region
    ! A rank that no array has is refused by the call that gets the region.
    region = c_region(merge(size(first), -1, size(first) == size(extent)), 0, 0, 1)
    call turn(first - 1, region%offset)
    call turn(extent, region%count)
  end function
end module
