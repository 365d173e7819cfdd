# Arrays of Terrace as Julia has arrays, by the C calls alone: dimensions in Julia's order, the innermost first, and the first cell is 1.
# Python, C and Zarr see the same array with its dimensions the other way round.
#
# Julia finds libterrace.so as any program does: in the system's directories, or by LD_LIBRARY_PATH.
module Terrace

export Session, StagedArray, TerraceError, create, flush_array, tag, tag!

const lib = "libterrace.so.0"
const RANK_MAX = 8

# The enumerations of terrace.h.
const NEW, REPLACE = Cint(0), Cint(1)
const TAG_BOOL, TAG_INT, TAG_FLOAT, TAG_TEXT = Cint(1), Cint(2), Cint(3), Cint(4)
const CODES = (:NOT_FOUND, :EXISTS, :WRONG_KIND, :INVALID, :OUT_OF_BOUNDS, :NO_SPACE, :BUSY, :NO_AGENT, :DENIED, :PROTOCOL, :SYSTEM, :DAMAGED,
               :BAD_HANDLE, :INTERNAL)

# What a call did not do: `code` is the name in terrace.h without TERRACE_, `message` the text of terrace_error().
struct TerraceError <: Exception
    code::Symbol
    message::String
end
Base.showerror(io::IO, error::TerraceError) = print(io, error.message)

function check(code::Cint)
    code == 0 && return
    message = unsafe_string(ccall((:terrace_error, lib), Cstring, ()))
    throw(TerraceError(1 <= code <= length(CODES) ? CODES[code] : :UNKNOWN, message))
end

# terrace_array_spec
struct Spec
    data_type::Cstring
    rank::Cint
    shape::NTuple{RANK_MAX,UInt64}
    unlimited::NTuple{RANK_MAX,Bool}
    chunks::NTuple{RANK_MAX,UInt64}
    fill::Ptr{Cvoid}
    dimensions::NTuple{RANK_MAX,Cstring}
    placement::Cint
end

# terrace_region
struct Region
    rank::Cint
    offset::NTuple{RANK_MAX,UInt64}
    count::NTuple{RANK_MAX,UInt64}
    stride::NTuple{RANK_MAX,UInt64}
end

# terrace_tag
struct Tag
    tag_type::Cint
    boolean::Bool
    integer::Int64
    real::Float64
    text::Cstring
    integers::Ptr{Int64}
    reals::Ptr{Float64}
    count::Csize_t
end
Tag(tag_type; boolean = false, integer = 0, real = 0.0, text = Cstring(C_NULL)) =
    Tag(tag_type, boolean, integer, real, text, C_NULL, C_NULL, 0)

# A C array of a struct: `values`, in C's order of dimensions, and the rest empty.
padded(values, rest) = ntuple(i -> i <= length(values) ? values[length(values) + 1 - i] : rest, RANK_MAX)

# A session with the agent of this run, or of the root that is named.
mutable struct Session
    handle::Ptr{Cvoid}
    function Session(root::AbstractString = "")
        handle = Ref{Ptr{Cvoid}}(C_NULL)
        check(ccall((:terrace_connect, lib), Cint, (Cstring, Ref{Ptr{Cvoid}}), root, handle))
        finalizer(close, new(handle[]))
    end
end

function Base.close(session::Session)
    session.handle == C_NULL && return
    handle, session.handle = session.handle, C_NULL
    check(ccall((:terrace_disconnect, lib), Cint, (Ptr{Cvoid},), handle))
end

const NAMES = Dict(Bool => "bool", Int8 => "int8", Int16 => "int16", Int32 => "int32", Int64 => "int64", UInt8 => "uint8",
                   UInt16 => "uint16", UInt32 => "uint32", UInt64 => "uint64", Float16 => "float16", Float32 => "float32",
                   Float64 => "float64", ComplexF32 => "complex64", ComplexF64 => "complex128")
const TYPES = Dict(name => type for (type, name) in NAMES)

# An open array of `N` dimensions.
mutable struct StagedArray{T,N}
    handle::Ptr{Cvoid}
    StagedArray{T,N}(handle) where {T,N} = finalizer(close, new{T,N}(handle))
end

# A new array. `shape`: `nothing` for a dimension that grows with what is put.
function create(session::Session, name::AbstractString, ::Type{T}, shape; replace = false) where {T}
    haskey(NAMES, T) || throw(ArgumentError("an array can't have cells of type $T"))
    length(shape) <= RANK_MAX || throw(ArgumentError("an array has up to $RANK_MAX dimensions"))
    handle = Ref{Ptr{Cvoid}}(C_NULL)
    data_type = NAMES[T]
    GC.@preserve data_type begin
        spec = Spec(Base.unsafe_convert(Cstring, data_type), length(shape), padded([UInt64(something(n, 0)) for n in shape], UInt64(0)),
                    padded([n === nothing for n in shape], false), padded(UInt64[], UInt64(0)), C_NULL,
                    padded(Cstring[], Cstring(C_NULL)), 0)
        check(ccall((:terrace_array_create, lib), Cint, (Ptr{Cvoid}, Cstring, Ref{Spec}, Cint, Ref{Ptr{Cvoid}}),
                    session, name, spec, replace ? REPLACE : NEW, handle))
    end
    StagedArray{T,length(shape)}(handle[])
end

# An array that is there: one that was created, or any Zarr v3 array below the root.
function StagedArray(session::Session, name::AbstractString; writable = false)
    handle = Ref{Ptr{Cvoid}}(C_NULL)
    check(ccall((:terrace_array_open, lib), Cint, (Ptr{Cvoid}, Cstring, Bool, Ref{Ptr{Cvoid}}), session, name, writable, handle))
    text = zeros(UInt8, 64)
    check(ccall((:terrace_array_type, lib), Cint, (Ptr{Cvoid}, Ptr{UInt8}, Csize_t, Ptr{Csize_t}), handle[], text, sizeof(text), C_NULL))
    data_type = GC.@preserve text unsafe_string(pointer(text))
    if !haskey(TYPES, data_type)
        ccall((:terrace_array_close, lib), Cint, (Ptr{Cvoid},), handle[])
        throw(ArgumentError("$name has cells of type $data_type, which this module does not read"))
    end
    StagedArray{TYPES[data_type],length(shape(handle[]))}(handle[])
end

function Base.close(array::StagedArray)
    array.handle == C_NULL && return
    handle, array.handle = array.handle, C_NULL
    check(ccall((:terrace_array_close, lib), Cint, (Ptr{Cvoid},), handle))
end

# A handle for a call, during which it stays open.
Base.unsafe_convert(::Type{Ptr{Cvoid}}, held::Union{Session,StagedArray}) = held.handle

function shape(array)
    rank, extents = Ref{Cint}(0), zeros(UInt64, RANK_MAX)
    check(ccall((:terrace_array_shape, lib), Cint, (Ptr{Cvoid}, Ref{Cint}, Ptr{UInt64}), array, rank, extents))
    Tuple(Int(extents[i]) for i in rank[]:-1:1)
end

# As it is now: a dimension that grows may be larger at the next call.
Base.size(array::StagedArray) = shape(array)
Base.size(array::StagedArray, dimension::Integer) = size(array)[dimension]
Base.ndims(::StagedArray{T,N}) where {T,N} = N
Base.eltype(::Type{<:StagedArray{T}}) where {T} = T
Base.lastindex(array::StagedArray, dimension::Integer) = size(array, dimension)

# The ranges that indices mean, one for each dimension.
function ranges(array::StagedArray{T,N}, indices) where {T,N}
    length(indices) == N || throw(ArgumentError("$N indices are needed, one for each dimension, and there are $(length(indices))"))
    whole = size(array)
    map(indices, whole) do index, extent
        range = index isa Colon ? (1:extent) : index isa Integer ? (index:index) : index
        range isa OrdinalRange && step(range) > 0 || throw(ArgumentError("an index is a number, a range that rises, or a colon"))
        isempty(range) || first(range) >= 1 || throw(BoundsError(array, indices))
        range
    end
end

Region(ranges) = Region(length(ranges), padded([UInt64(max(first(r), 1) - 1) for r in ranges], UInt64(0)),
                        padded([UInt64(length(r)) for r in ranges], UInt64(0)), padded([UInt64(step(r)) for r in ranges], UInt64(1)))

# `array[:, :, step] = cells`: when it returns, every program of the run sees them. A single number is put into all cells.
function Base.setindex!(array::StagedArray{T}, cells, indices...) where {T}
    wanted = ranges(array, indices)
    count = mapreduce(length, *, wanted; init = 1)
    packed = cells isa AbstractArray ? convert(Vector{T}, vec(collect(cells))) : fill(convert(T, cells), count)
    length(packed) == count || throw(DimensionMismatch("$(length(packed)) cells for a region of $count"))
    check(ccall((:terrace_array_put, lib), Cint, (Ptr{Cvoid}, Ref{Region}, Ptr{Cvoid}, Csize_t),
                array, Region(wanted), packed, sizeof(packed)))
    cells
end

# `array[1:10, :, step]`: an Array; a dimension with a number for its index is left out, as in Julia's own.
function Base.getindex(array::StagedArray{T}, indices...) where {T}
    wanted = ranges(array, indices)
    cells = Vector{T}(undef, mapreduce(length, *, wanted; init = 1))
    check(ccall((:terrace_array_get, lib), Cint, (Ptr{Cvoid}, Ref{Region}, Ptr{Cvoid}, Csize_t),
                array, Region(wanted), cells, sizeof(cells)))
    kept = Tuple(length(r) for (r, index) in zip(wanted, indices) if !(index isa Integer))
    isempty(kept) ? cells[1] : reshape(cells, kept)
end

# Makes the array durable now.
flush_array(array::StagedArray) = check(ccall((:terrace_array_flush, lib), Cint, (Ptr{Cvoid},), array))

put_tag(session, name, key, value) =
    check(ccall((:terrace_tag_put, lib), Cint, (Ptr{Cvoid}, Cstring, Cstring, Ref{Tag}), session, name, key, value))

# Sets a tag of an object: a text or a number.
tag!(session::Session, name, key, value::Bool) = put_tag(session, name, key, Tag(TAG_BOOL; boolean = value))
tag!(session::Session, name, key, value::Integer) = put_tag(session, name, key, Tag(TAG_INT; integer = value))
tag!(session::Session, name, key, value::Real) = put_tag(session, name, key, Tag(TAG_FLOAT; real = value))
function tag!(session::Session, name, key, value::AbstractString)
    text = String(value)
    GC.@preserve text put_tag(session, name, key, Tag(TAG_TEXT; text = Base.unsafe_convert(Cstring, text)))
end

# A tag of an object.
function tag(session::Session, name, key)
    found, buffer = Ref(Tag(Cint(0))), zeros(UInt8, 4096)
    GC.@preserve buffer begin
        check(ccall((:terrace_tag_get, lib), Cint, (Ptr{Cvoid}, Cstring, Cstring, Ref{Tag}, Ptr{UInt8}, Csize_t),
                    session, name, key, found, buffer, sizeof(buffer)))
        value = found[]
        value.tag_type == TAG_BOOL && return value.boolean
        value.tag_type == TAG_INT && return value.integer
        value.tag_type == TAG_FLOAT && return value.real
        value.tag_type == TAG_TEXT && return unsafe_string(value.text)
        throw(ArgumentError("the tag $key of $name is of a type that this module does not read"))
    end
end

end
