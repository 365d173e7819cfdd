! All of terrace.h, as it is: each call has `c_` before its name. Made of the header by tests/fortran.rs; do not edit.
! Texts end in c_null_char, dimensions are in C's order (the last one is innermost) and count from 0, pointers are c_loc of
! what they lead to. The module `terrace` (terrace.f90) is these calls in Fortran's own terms.
module terrace_c
  use, intrinsic :: iso_c_binding
  implicit none
  private

  integer(c_int), parameter, public :: TERRACE_RANK_MAX = 8
  integer(c_int), parameter, public :: TERRACE_OK = 0
  integer(c_int), parameter, public :: TERRACE_NOT_FOUND = 1
  integer(c_int), parameter, public :: TERRACE_EXISTS = 2
  integer(c_int), parameter, public :: TERRACE_WRONG_KIND = 3
  integer(c_int), parameter, public :: TERRACE_INVALID = 4
  integer(c_int), parameter, public :: TERRACE_OUT_OF_BOUNDS = 5
  integer(c_int), parameter, public :: TERRACE_NO_SPACE = 6
  integer(c_int), parameter, public :: TERRACE_BUSY = 7
  integer(c_int), parameter, public :: TERRACE_NO_AGENT = 8
  integer(c_int), parameter, public :: TERRACE_DENIED = 9
  integer(c_int), parameter, public :: TERRACE_PROTOCOL = 10
  integer(c_int), parameter, public :: TERRACE_SYSTEM = 11
  integer(c_int), parameter, public :: TERRACE_DAMAGED = 12
  integer(c_int), parameter, public :: TERRACE_BAD_HANDLE = 13
  integer(c_int), parameter, public :: TERRACE_INTERNAL = 14
  integer(c_int), parameter, public :: TERRACE_NEW = 0
  integer(c_int), parameter, public :: TERRACE_REPLACE = 1
  integer(c_int), parameter, public :: TERRACE_IF_MISSING = 2
  integer(c_int), parameter, public :: TERRACE_CONTAINER = 0
  integer(c_int), parameter, public :: TERRACE_BYTES = 1
  integer(c_int), parameter, public :: TERRACE_ARRAY = 2
  integer(c_int), parameter, public :: TERRACE_SPREAD = 0
  integer(c_int), parameter, public :: TERRACE_LOCAL = 1
  integer(c_int), parameter, public :: TERRACE_ONE = 2
  integer(c_int), parameter, public :: TERRACE_PUT = 0
  integer(c_int), parameter, public :: TERRACE_GET = 1
  integer(c_int), parameter, public :: TERRACE_READ = 0
  integer(c_int), parameter, public :: TERRACE_WRITE = 1
  integer(c_int), parameter, public :: TERRACE_TAG_NONE = 0
  integer(c_int), parameter, public :: TERRACE_TAG_BOOL = 1
  integer(c_int), parameter, public :: TERRACE_TAG_INT = 2
  integer(c_int), parameter, public :: TERRACE_TAG_FLOAT = 3
  integer(c_int), parameter, public :: TERRACE_TAG_TEXT = 4
  integer(c_int), parameter, public :: TERRACE_TAG_INTS = 5
  integer(c_int), parameter, public :: TERRACE_TAG_FLOATS = 6
  integer(c_int), parameter, public :: TERRACE_ANY = 0
  integer(c_int), parameter, public :: TERRACE_EXACT = 1
  integer(c_int), parameter, public :: TERRACE_RANGE = 2
  integer(c_int), parameter, public :: TERRACE_PREFIX = 3
  integer(c_int), parameter, public :: TERRACE_SUFFIX = 4
  integer(c_int), parameter, public :: TERRACE_INFIX = 5
  integer(c_int), parameter, public :: TERRACE_LIKE = 6
  integer(c_int), parameter, public :: TERRACE_STAGED = 0
  integer(c_int), parameter, public :: TERRACE_ANALYSIS = 1
  integer(c_int), parameter, public :: TERRACE_DURABLE = 2
  integer(c_int), parameter, public :: TERRACE_ON_PUT = 0
  integer(c_int), parameter, public :: TERRACE_ON_GET = 1

  type, bind(c), public :: terrace_info
    integer(c_int) :: kind = 0
    logical(c_bool) :: is_durable = .false._c_bool
    integer(c_int64_t) :: bytes = 0
    character(c_char) :: tier(32) = c_null_char
  end type
  type, bind(c), public :: terrace_array_spec
    type(c_ptr) :: data_type = c_null_ptr
    integer(c_int) :: rank = 0
    integer(c_int64_t) :: shape(TERRACE_RANK_MAX) = 0
    logical(c_bool) :: unlimited(TERRACE_RANK_MAX) = .false._c_bool
    integer(c_int64_t) :: chunks(TERRACE_RANK_MAX) = 0
    type(c_ptr) :: fill = c_null_ptr
    type(c_ptr) :: dimensions(TERRACE_RANK_MAX) = c_null_ptr
    integer(c_int) :: placement = 0
  end type
  type, bind(c), public :: terrace_region
    integer(c_int) :: rank = 0
    integer(c_int64_t) :: offset(TERRACE_RANK_MAX) = 0
    integer(c_int64_t) :: count(TERRACE_RANK_MAX) = 0
    integer(c_int64_t) :: stride(TERRACE_RANK_MAX) = 0
  end type
  type, bind(c), public :: terrace_stager_spec
    integer(c_int64_t) :: queue_bytes = 0
    logical(c_bool) :: drops = .false._c_bool
    integer(c_int) :: threads = 0
  end type
  type, bind(c), public :: terrace_stager_counters
    integer(c_int64_t) :: queued_puts = 0
    integer(c_int64_t) :: queued_bytes = 0
    integer(c_int64_t) :: queued_bytes_max = 0
    integer(c_int64_t) :: done_puts = 0
    integer(c_int64_t) :: done_bytes = 0
    integer(c_int64_t) :: dropped_puts = 0
    integer(c_int64_t) :: dropped_bytes = 0
    integer(c_int64_t) :: dropped_steps = 0
    integer(c_int64_t) :: failed_puts = 0
    real(c_double) :: blocked_s = 0
    real(c_double) :: busy_s = 0
  end type
  type, bind(c), public :: terrace_tag
    integer(c_int) :: tag_type = 0
    logical(c_bool) :: boolean = .false._c_bool
    integer(c_int64_t) :: integer = 0
    real(c_double) :: real = 0
    type(c_ptr) :: text = c_null_ptr
    type(c_ptr) :: integers = c_null_ptr
    type(c_ptr) :: reals = c_null_ptr
    integer(c_size_t) :: count = 0
  end type
  type, bind(c), public :: terrace_query
    type(c_ptr) :: key = c_null_ptr
    integer(c_int) :: matches = 0
    type(terrace_tag) :: low
    type(terrace_tag) :: high
    type(c_ptr) :: below = c_null_ptr
  end type

  public :: c_terrace_array_close
  public :: c_terrace_array_create
  public :: c_terrace_array_flush
  public :: c_terrace_array_get
  public :: c_terrace_array_get_into
  public :: c_terrace_array_grow
  public :: c_terrace_array_hook
  public :: c_terrace_array_hook_library
  public :: c_terrace_array_lock
  public :: c_terrace_array_open
  public :: c_terrace_array_put
  public :: c_terrace_array_put_from
  public :: c_terrace_array_resize
  public :: c_terrace_array_shape
  public :: c_terrace_array_type
  public :: c_terrace_array_unhook
  public :: c_terrace_bytes_append
  public :: c_terrace_bytes_close
  public :: c_terrace_bytes_create
  public :: c_terrace_bytes_flush
  public :: c_terrace_bytes_length
  public :: c_terrace_bytes_open
  public :: c_terrace_bytes_read
  public :: c_terrace_bytes_set_length
  public :: c_terrace_bytes_sync
  public :: c_terrace_bytes_write
  public :: c_terrace_connect
  public :: c_terrace_container_create
  public :: c_terrace_containers_of
  public :: c_terrace_disconnect
  public :: c_terrace_error
  public :: c_terrace_evict
  public :: c_terrace_find
  public :: c_terrace_flush
  public :: c_terrace_histogram
  public :: c_terrace_list
  public :: c_terrace_lock_release
  public :: c_terrace_map
  public :: c_terrace_mapping_lock
  public :: c_terrace_mapping_release
  public :: c_terrace_member_add
  public :: c_terrace_member_remove
  public :: c_terrace_members
  public :: c_terrace_prefetch
  public :: c_terrace_remove
  public :: c_terrace_rename
  public :: c_terrace_root
  public :: c_terrace_savime_close
  public :: c_terrace_savime_open
  public :: c_terrace_savime_run
  public :: c_terrace_select
  public :: c_terrace_selection_close
  public :: c_terrace_selection_count
  public :: c_terrace_selection_get
  public :: c_terrace_selection_positions
  public :: c_terrace_stager_begin_step
  public :: c_terrace_stager_close
  public :: c_terrace_stager_count
  public :: c_terrace_stager_create
  public :: c_terrace_stager_publish
  public :: c_terrace_stager_put
  public :: c_terrace_stager_sync
  public :: c_terrace_stat
  public :: c_terrace_steps_close
  public :: c_terrace_steps_next
  public :: c_terrace_steps_open
  public :: c_terrace_tag_delete
  public :: c_terrace_tag_get
  public :: c_terrace_tag_put
  public :: c_terrace_tags
  public :: c_terrace_text_free
  public :: c_terrace_transfer_close
  public :: c_terrace_transfer_create
  public :: c_terrace_transfer_start
  public :: c_terrace_transfer_test
  public :: c_terrace_transfer_wait
  public :: c_terrace_transfers_start
  public :: c_terrace_transfers_wait
  public :: c_terrace_unmap
  public :: c_terrace_version
  public :: c_terrace_wait_for
  public :: c_terrace_where_and
  public :: c_terrace_where_close
  public :: c_terrace_where_new
  public :: c_terrace_where_or

  interface
    function c_terrace_error() &
        bind(c, name="terrace_error") result(answer)
      import
      type(c_ptr) :: answer
    end function
    function c_terrace_version() &
        bind(c, name="terrace_version") result(answer)
      import
      type(c_ptr) :: answer
    end function
    function c_terrace_connect(target, &
        session) &
        bind(c, name="terrace_connect") result(answer)
      import
      character(c_char), intent(in) :: target(*)
      type(c_ptr), intent(out) :: session
      integer(c_int) :: answer
    end function
    function c_terrace_disconnect(session) &
        bind(c, name="terrace_disconnect") result(answer)
      import
      type(c_ptr), value :: session
      integer(c_int) :: answer
    end function
    function c_terrace_root(session, &
        path, &
        size) &
        bind(c, name="terrace_root") result(answer)
      import
      type(c_ptr), value :: session
      type(c_ptr), value :: path
      integer(c_size_t), value :: size
      integer(c_int) :: answer
    end function
    function c_terrace_container_create(session, &
        name, &
        how) &
        bind(c, name="terrace_container_create") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      integer(c_int), value :: how
      integer(c_int) :: answer
    end function
    function c_terrace_list(session, &
        container, &
        visit, &
        context) &
        bind(c, name="terrace_list") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: container(*)
      type(c_funptr), value :: visit
      type(c_ptr), value :: context
      integer(c_int) :: answer
    end function
    function c_terrace_member_add(session, &
        container, &
        object) &
        bind(c, name="terrace_member_add") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: container(*)
      character(c_char), intent(in) :: object(*)
      integer(c_int) :: answer
    end function
    function c_terrace_member_remove(session, &
        container, &
        object) &
        bind(c, name="terrace_member_remove") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: container(*)
      character(c_char), intent(in) :: object(*)
      integer(c_int) :: answer
    end function
    function c_terrace_members(session, &
        container, &
        visit, &
        context) &
        bind(c, name="terrace_members") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: container(*)
      type(c_funptr), value :: visit
      type(c_ptr), value :: context
      integer(c_int) :: answer
    end function
    function c_terrace_containers_of(session, &
        object, &
        visit, &
        context) &
        bind(c, name="terrace_containers_of") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: object(*)
      type(c_funptr), value :: visit
      type(c_ptr), value :: context
      integer(c_int) :: answer
    end function
    function c_terrace_stat(session, &
        name, &
        info) &
        bind(c, name="terrace_stat") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      type(c_ptr), value :: info
      integer(c_int) :: answer
    end function
    function c_terrace_remove(session, &
        name, &
        with_contents) &
        bind(c, name="terrace_remove") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      logical(c_bool), value :: with_contents
      integer(c_int) :: answer
    end function
    function c_terrace_wait_for(session, &
        name, &
        seconds, &
        info) &
        bind(c, name="terrace_wait_for") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      real(c_double), value :: seconds
      type(c_ptr), value :: info
      integer(c_int) :: answer
    end function
    function c_terrace_flush(session, &
        name) &
        bind(c, name="terrace_flush") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      integer(c_int) :: answer
    end function
    function c_terrace_evict(session, &
        name) &
        bind(c, name="terrace_evict") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      integer(c_int) :: answer
    end function
    function c_terrace_prefetch(session, &
        name) &
        bind(c, name="terrace_prefetch") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      integer(c_int) :: answer
    end function
    function c_terrace_rename(session, &
        from, &
        to) &
        bind(c, name="terrace_rename") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: from(*)
      character(c_char), intent(in) :: to(*)
      integer(c_int) :: answer
    end function
    function c_terrace_bytes_create(session, &
        name, &
        how, &
        bytes) &
        bind(c, name="terrace_bytes_create") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      integer(c_int), value :: how
      type(c_ptr), intent(out) :: bytes
      integer(c_int) :: answer
    end function
    function c_terrace_bytes_open(session, &
        name, &
        writable, &
        bytes) &
        bind(c, name="terrace_bytes_open") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      logical(c_bool), value :: writable
      type(c_ptr), intent(out) :: bytes
      integer(c_int) :: answer
    end function
    function c_terrace_bytes_read(bytes, &
        position, &
        buffer, &
        count, &
        got) &
        bind(c, name="terrace_bytes_read") result(answer)
      import
      type(c_ptr), value :: bytes
      integer(c_int64_t), value :: position
      type(c_ptr), value :: buffer
      integer(c_size_t), value :: count
      type(c_ptr), value :: got
      integer(c_int) :: answer
    end function
    function c_terrace_bytes_write(bytes, &
        position, &
        buffer, &
        count) &
        bind(c, name="terrace_bytes_write") result(answer)
      import
      type(c_ptr), value :: bytes
      integer(c_int64_t), value :: position
      type(c_ptr), value :: buffer
      integer(c_size_t), value :: count
      integer(c_int) :: answer
    end function
    function c_terrace_bytes_append(bytes, &
        buffer, &
        count, &
        position) &
        bind(c, name="terrace_bytes_append") result(answer)
      import
      type(c_ptr), value :: bytes
      type(c_ptr), value :: buffer
      integer(c_size_t), value :: count
      type(c_ptr), value :: position
      integer(c_int) :: answer
    end function
    function c_terrace_bytes_length(bytes, &
        length) &
        bind(c, name="terrace_bytes_length") result(answer)
      import
      type(c_ptr), value :: bytes
      type(c_ptr), value :: length
      integer(c_int) :: answer
    end function
    function c_terrace_bytes_set_length(bytes, &
        length) &
        bind(c, name="terrace_bytes_set_length") result(answer)
      import
      type(c_ptr), value :: bytes
      integer(c_int64_t), value :: length
      integer(c_int) :: answer
    end function
    function c_terrace_bytes_flush(bytes) &
        bind(c, name="terrace_bytes_flush") result(answer)
      import
      type(c_ptr), value :: bytes
      integer(c_int) :: answer
    end function
    function c_terrace_bytes_sync(bytes) &
        bind(c, name="terrace_bytes_sync") result(answer)
      import
      type(c_ptr), value :: bytes
      integer(c_int) :: answer
    end function
    function c_terrace_bytes_close(bytes) &
        bind(c, name="terrace_bytes_close") result(answer)
      import
      type(c_ptr), value :: bytes
      integer(c_int) :: answer
    end function
    function c_terrace_array_create(session, &
        name, &
        spec, &
        how, &
        array) &
        bind(c, name="terrace_array_create") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      type(c_ptr), value :: spec
      integer(c_int), value :: how
      type(c_ptr), intent(out) :: array
      integer(c_int) :: answer
    end function
    function c_terrace_array_open(session, &
        name, &
        writable, &
        array) &
        bind(c, name="terrace_array_open") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      logical(c_bool), value :: writable
      type(c_ptr), intent(out) :: array
      integer(c_int) :: answer
    end function
    function c_terrace_array_shape(array, &
        rank, &
        shape) &
        bind(c, name="terrace_array_shape") result(answer)
      import
      type(c_ptr), value :: array
      type(c_ptr), value :: rank
      type(c_ptr), value :: shape
      integer(c_int) :: answer
    end function
    function c_terrace_array_type(array, &
        name, &
        size, &
        cell_bytes) &
        bind(c, name="terrace_array_type") result(answer)
      import
      type(c_ptr), value :: array
      type(c_ptr), value :: name
      integer(c_size_t), value :: size
      type(c_ptr), value :: cell_bytes
      integer(c_int) :: answer
    end function
    function c_terrace_array_grow(array, &
        rank, &
        shape) &
        bind(c, name="terrace_array_grow") result(answer)
      import
      type(c_ptr), value :: array
      integer(c_int), value :: rank
      type(c_ptr), value :: shape
      integer(c_int) :: answer
    end function
    function c_terrace_array_resize(array, &
        rank, &
        shape) &
        bind(c, name="terrace_array_resize") result(answer)
      import
      type(c_ptr), value :: array
      integer(c_int), value :: rank
      type(c_ptr), value :: shape
      integer(c_int) :: answer
    end function
    function c_terrace_array_put(array, &
        region, &
        cells, &
        bytes) &
        bind(c, name="terrace_array_put") result(answer)
      import
      type(c_ptr), value :: array
      type(c_ptr), value :: region
      type(c_ptr), value :: cells
      integer(c_size_t), value :: bytes
      integer(c_int) :: answer
    end function
    function c_terrace_array_get(array, &
        region, &
        cells, &
        bytes) &
        bind(c, name="terrace_array_get") result(answer)
      import
      type(c_ptr), value :: array
      type(c_ptr), value :: region
      type(c_ptr), value :: cells
      integer(c_size_t), value :: bytes
      integer(c_int) :: answer
    end function
    function c_terrace_array_flush(array) &
        bind(c, name="terrace_array_flush") result(answer)
      import
      type(c_ptr), value :: array
      integer(c_int) :: answer
    end function
    function c_terrace_array_close(array) &
        bind(c, name="terrace_array_close") result(answer)
      import
      type(c_ptr), value :: array
      integer(c_int) :: answer
    end function
    function c_terrace_transfer_create(array, &
        direction, &
        region, &
        cells, &
        bytes, &
        transfer) &
        bind(c, name="terrace_transfer_create") result(answer)
      import
      type(c_ptr), value :: array
      integer(c_int), value :: direction
      type(c_ptr), value :: region
      type(c_ptr), value :: cells
      integer(c_size_t), value :: bytes
      type(c_ptr), intent(out) :: transfer
      integer(c_int) :: answer
    end function
    function c_terrace_transfer_start(transfer) &
        bind(c, name="terrace_transfer_start") result(answer)
      import
      type(c_ptr), value :: transfer
      integer(c_int) :: answer
    end function
    function c_terrace_transfer_test(transfer, &
        done) &
        bind(c, name="terrace_transfer_test") result(answer)
      import
      type(c_ptr), value :: transfer
      type(c_ptr), value :: done
      integer(c_int) :: answer
    end function
    function c_terrace_transfer_wait(transfer, &
        seconds) &
        bind(c, name="terrace_transfer_wait") result(answer)
      import
      type(c_ptr), value :: transfer
      real(c_double), value :: seconds
      integer(c_int) :: answer
    end function
    function c_terrace_transfers_start(transfers, &
        count) &
        bind(c, name="terrace_transfers_start") result(answer)
      import
      type(c_ptr), value :: transfers
      integer(c_size_t), value :: count
      integer(c_int) :: answer
    end function
    function c_terrace_transfers_wait(transfers, &
        count, &
        seconds) &
        bind(c, name="terrace_transfers_wait") result(answer)
      import
      type(c_ptr), value :: transfers
      integer(c_size_t), value :: count
      real(c_double), value :: seconds
      integer(c_int) :: answer
    end function
    function c_terrace_transfer_close(transfer) &
        bind(c, name="terrace_transfer_close") result(answer)
      import
      type(c_ptr), value :: transfer
      integer(c_int) :: answer
    end function
    function c_terrace_stager_create(session, &
        spec, &
        stager) &
        bind(c, name="terrace_stager_create") result(answer)
      import
      type(c_ptr), value :: session
      type(c_ptr), value :: spec
      type(c_ptr), intent(out) :: stager
      integer(c_int) :: answer
    end function
    function c_terrace_stager_put(stager, &
        array, &
        region, &
        cells, &
        bytes, &
        copies, &
        queued) &
        bind(c, name="terrace_stager_put") result(answer)
      import
      type(c_ptr), value :: stager
      type(c_ptr), value :: array
      type(c_ptr), value :: region
      type(c_ptr), value :: cells
      integer(c_size_t), value :: bytes
      logical(c_bool), value :: copies
      type(c_ptr), value :: queued
      integer(c_int) :: answer
    end function
    function c_terrace_stager_begin_step(stager, &
        bytes, &
        queued) &
        bind(c, name="terrace_stager_begin_step") result(answer)
      import
      type(c_ptr), value :: stager
      integer(c_int64_t), value :: bytes
      type(c_ptr), value :: queued
      integer(c_int) :: answer
    end function
    function c_terrace_stager_publish(stager, &
        container, &
        steps) &
        bind(c, name="terrace_stager_publish") result(answer)
      import
      type(c_ptr), value :: stager
      character(c_char), intent(in) :: container(*)
      integer(c_int64_t), value :: steps
      integer(c_int) :: answer
    end function
    function c_terrace_stager_sync(stager, &
        arrived, &
        seconds) &
        bind(c, name="terrace_stager_sync") result(answer)
      import
      type(c_ptr), value :: stager
      integer(c_int), value :: arrived
      real(c_double), value :: seconds
      integer(c_int) :: answer
    end function
    function c_terrace_stager_count(stager, &
        counters) &
        bind(c, name="terrace_stager_count") result(answer)
      import
      type(c_ptr), value :: stager
      type(c_ptr), value :: counters
      integer(c_int) :: answer
    end function
    function c_terrace_stager_close(stager) &
        bind(c, name="terrace_stager_close") result(answer)
      import
      type(c_ptr), value :: stager
      integer(c_int) :: answer
    end function
    function c_terrace_steps_open(session, &
        container, &
        from, &
        arrays, &
        count, &
        steps) &
        bind(c, name="terrace_steps_open") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: container(*)
      integer(c_int64_t), value :: from
      type(c_ptr), value :: arrays
      integer(c_size_t), value :: count
      type(c_ptr), intent(out) :: steps
      integer(c_int) :: answer
    end function
    function c_terrace_steps_next(steps, &
        seconds, &
        step) &
        bind(c, name="terrace_steps_next") result(answer)
      import
      type(c_ptr), value :: steps
      real(c_double), value :: seconds
      type(c_ptr), value :: step
      integer(c_int) :: answer
    end function
    function c_terrace_steps_close(steps) &
        bind(c, name="terrace_steps_close") result(answer)
      import
      type(c_ptr), value :: steps
      integer(c_int) :: answer
    end function
    function c_terrace_array_lock(array, &
        region, &
        mode, &
        seconds, &
        lock) &
        bind(c, name="terrace_array_lock") result(answer)
      import
      type(c_ptr), value :: array
      type(c_ptr), value :: region
      integer(c_int), value :: mode
      real(c_double), value :: seconds
      type(c_ptr), intent(out) :: lock
      integer(c_int) :: answer
    end function
    function c_terrace_lock_release(lock) &
        bind(c, name="terrace_lock_release") result(answer)
      import
      type(c_ptr), value :: lock
      integer(c_int) :: answer
    end function
    function c_terrace_map(array, &
        region, &
        buffer, &
        bytes, &
        mapping) &
        bind(c, name="terrace_map") result(answer)
      import
      type(c_ptr), value :: array
      type(c_ptr), value :: region
      type(c_ptr), value :: buffer
      integer(c_size_t), value :: bytes
      type(c_ptr), intent(out) :: mapping
      integer(c_int) :: answer
    end function
    function c_terrace_mapping_lock(mapping, &
        mode, &
        seconds) &
        bind(c, name="terrace_mapping_lock") result(answer)
      import
      type(c_ptr), value :: mapping
      integer(c_int), value :: mode
      real(c_double), value :: seconds
      integer(c_int) :: answer
    end function
    function c_terrace_mapping_release(mapping) &
        bind(c, name="terrace_mapping_release") result(answer)
      import
      type(c_ptr), value :: mapping
      integer(c_int) :: answer
    end function
    function c_terrace_unmap(mapping) &
        bind(c, name="terrace_unmap") result(answer)
      import
      type(c_ptr), value :: mapping
      integer(c_int) :: answer
    end function
    function c_terrace_tag_put(session, &
        name, &
        key, &
        tag) &
        bind(c, name="terrace_tag_put") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      character(c_char), intent(in) :: key(*)
      type(c_ptr), value :: tag
      integer(c_int) :: answer
    end function
    function c_terrace_tag_get(session, &
        name, &
        key, &
        tag, &
        buffer, &
        size) &
        bind(c, name="terrace_tag_get") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      character(c_char), intent(in) :: key(*)
      type(c_ptr), value :: tag
      type(c_ptr), value :: buffer
      integer(c_size_t), value :: size
      integer(c_int) :: answer
    end function
    function c_terrace_tag_delete(session, &
        name, &
        key) &
        bind(c, name="terrace_tag_delete") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      character(c_char), intent(in) :: key(*)
      integer(c_int) :: answer
    end function
    function c_terrace_tags(session, &
        name, &
        visit, &
        context) &
        bind(c, name="terrace_tags") result(answer)
      import
      type(c_ptr), value :: session
      character(c_char), intent(in) :: name(*)
      type(c_funptr), value :: visit
      type(c_ptr), value :: context
      integer(c_int) :: answer
    end function
    function c_terrace_find(session, &
        query, &
        visit, &
        context) &
        bind(c, name="terrace_find") result(answer)
      import
      type(c_ptr), value :: session
      type(c_ptr), value :: query
      type(c_funptr), value :: visit
      type(c_ptr), value :: context
      integer(c_int) :: answer
    end function
    function c_terrace_where_new(array, &
        comparison, &
        question) &
        bind(c, name="terrace_where_new") result(answer)
      import
      type(c_ptr), value :: array
      character(c_char), intent(in) :: comparison(*)
      type(c_ptr), intent(out) :: question
      integer(c_int) :: answer
    end function
    function c_terrace_where_and(one, &
        other, &
        both) &
        bind(c, name="terrace_where_and") result(answer)
      import
      type(c_ptr), value :: one
      type(c_ptr), value :: other
      type(c_ptr), intent(out) :: both
      integer(c_int) :: answer
    end function
    function c_terrace_where_or(one, &
        other, &
        either) &
        bind(c, name="terrace_where_or") result(answer)
      import
      type(c_ptr), value :: one
      type(c_ptr), value :: other
      type(c_ptr), intent(out) :: either
      integer(c_int) :: answer
    end function
    function c_terrace_where_close(question) &
        bind(c, name="terrace_where_close") result(answer)
      import
      type(c_ptr), value :: question
      integer(c_int) :: answer
    end function
    function c_terrace_select(question, &
        within, &
        selection) &
        bind(c, name="terrace_select") result(answer)
      import
      type(c_ptr), value :: question
      type(c_ptr), value :: within
      type(c_ptr), intent(out) :: selection
      integer(c_int) :: answer
    end function
    function c_terrace_selection_count(selection, &
        count) &
        bind(c, name="terrace_selection_count") result(answer)
      import
      type(c_ptr), value :: selection
      type(c_ptr), value :: count
      integer(c_int) :: answer
    end function
    function c_terrace_selection_positions(selection, &
        positions, &
        room) &
        bind(c, name="terrace_selection_positions") result(answer)
      import
      type(c_ptr), value :: selection
      type(c_ptr), value :: positions
      integer(c_size_t), value :: room
      integer(c_int) :: answer
    end function
    function c_terrace_selection_get(selection, &
        array, &
        cells, &
        bytes) &
        bind(c, name="terrace_selection_get") result(answer)
      import
      type(c_ptr), value :: selection
      type(c_ptr), value :: array
      type(c_ptr), value :: cells
      integer(c_size_t), value :: bytes
      integer(c_int) :: answer
    end function
    function c_terrace_selection_close(selection) &
        bind(c, name="terrace_selection_close") result(answer)
      import
      type(c_ptr), value :: selection
      integer(c_int) :: answer
    end function
    function c_terrace_histogram(array, &
        within, &
        bins, &
        low, &
        high, &
        counts) &
        bind(c, name="terrace_histogram") result(answer)
      import
      type(c_ptr), value :: array
      type(c_ptr), value :: within
      integer(c_size_t), value :: bins
      type(c_ptr), value :: low
      type(c_ptr), value :: high
      type(c_ptr), value :: counts
      integer(c_int) :: answer
    end function
    function c_terrace_array_put_from(array, &
        region, &
        shape, &
        memory, &
        buffer, &
        bytes) &
        bind(c, name="terrace_array_put_from") result(answer)
      import
      type(c_ptr), value :: array
      type(c_ptr), value :: region
      type(c_ptr), value :: shape
      type(c_ptr), value :: memory
      type(c_ptr), value :: buffer
      integer(c_size_t), value :: bytes
      integer(c_int) :: answer
    end function
    function c_terrace_array_get_into(array, &
        region, &
        shape, &
        memory, &
        buffer, &
        bytes) &
        bind(c, name="terrace_array_get_into") result(answer)
      import
      type(c_ptr), value :: array
      type(c_ptr), value :: region
      type(c_ptr), value :: shape
      type(c_ptr), value :: memory
      type(c_ptr), value :: buffer
      integer(c_size_t), value :: bytes
      integer(c_int) :: answer
    end function
    function c_terrace_savime_open(target, &
        savime) &
        bind(c, name="terrace_savime_open") result(answer)
      import
      character(c_char), intent(in) :: target(*)
      type(c_ptr), intent(out) :: savime
      integer(c_int) :: answer
    end function
    function c_terrace_savime_run(savime, &
        commands, &
        rows) &
        bind(c, name="terrace_savime_run") result(answer)
      import
      type(c_ptr), value :: savime
      character(c_char), intent(in) :: commands(*)
      type(c_ptr), intent(out) :: rows
      integer(c_int) :: answer
    end function
    subroutine c_terrace_text_free(text) &
        bind(c, name="terrace_text_free")
      import
      type(c_ptr), value :: text
    end subroutine
    function c_terrace_savime_close(savime) &
        bind(c, name="terrace_savime_close") result(answer)
      import
      type(c_ptr), value :: savime
      integer(c_int) :: answer
    end function
    function c_terrace_array_hook(array, &
        when, &
        function, &
        context) &
        bind(c, name="terrace_array_hook") result(answer)
      import
      type(c_ptr), value :: array
      integer(c_int), value :: when
      type(c_funptr), value :: function
      type(c_ptr), value :: context
      integer(c_int) :: answer
    end function
    function c_terrace_array_hook_library(array, &
        when, &
        library, &
        symbol, &
        context) &
        bind(c, name="terrace_array_hook_library") result(answer)
      import
      type(c_ptr), value :: array
      integer(c_int), value :: when
      character(c_char), intent(in) :: library(*)
      character(c_char), intent(in) :: symbol(*)
      type(c_ptr), value :: context
      integer(c_int) :: answer
    end function
    function c_terrace_array_unhook(array) &
        bind(c, name="terrace_array_unhook") result(answer)
      import
      type(c_ptr), value :: array
      integer(c_int) :: answer
    end function
  end interface
end module
