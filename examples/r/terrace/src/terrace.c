/* What R calls: values of R's as terrace.h wants them.
 *
 * A session and an array are external pointers, closed when R collects them. Errors are R's, with Terrace's words. R's arrays have
 * their innermost dimension first, so shapes and regions are turned round; the cells lie as they are. */

#include <R.h>
#include <R_ext/Rdynload.h>
#include <Rinternals.h>
#include <string.h>
#include <terrace.h>

static void check(int code) {
    if (code != TERRACE_OK) Rf_error("%s", terrace_error());
}

static void *pointer_of(SEXP handle, const char *tag) {
    if (TYPEOF(handle) != EXTPTRSXP || R_ExternalPtrTag(handle) != Rf_install(tag)) Rf_error("this is no %s", tag);
    void *pointer = R_ExternalPtrAddr(handle);
    if (!pointer) Rf_error("this %s is closed: it is of an earlier R session", tag);
    return pointer;
}

static const char *text_of(SEXP value, const char *what) {
    if (TYPEOF(value) != STRSXP || XLENGTH(value) != 1 || STRING_ELT(value, 0) == NA_STRING) Rf_error("%s must be one text", what);
    return Rf_translateCharUTF8(STRING_ELT(value, 0));
}

static SEXP handle_of(void *pointer, const char *tag, R_CFinalizer_t close) {
    SEXP handle = PROTECT(R_MakeExternalPtr(pointer, Rf_install(tag), R_NilValue));
    R_RegisterCFinalizerEx(handle, close, TRUE);
    UNPROTECT(1);
    return handle;
}

static void session_close(SEXP handle) {
    if (R_ExternalPtrAddr(handle)) terrace_disconnect(R_ExternalPtrAddr(handle));
    R_ClearExternalPtr(handle);
}

static void array_close(SEXP handle) {
    if (R_ExternalPtrAddr(handle)) terrace_array_close(R_ExternalPtrAddr(handle));
    R_ClearExternalPtr(handle);
}

/* Numbers of R's, the innermost first, as extents or places from `base` on. */
static int numbers_of(SEXP values, double base, uint64_t *into, const char *what) {
    R_xlen_t rank = XLENGTH(values);
    if (rank < 1 || rank > TERRACE_RANK_MAX) Rf_error("%s must have 1 to %d numbers", what, TERRACE_RANK_MAX);
    for (R_xlen_t axis = 0; axis < rank; axis++) {
        double value = REAL(values)[rank - 1 - axis] - base;
        /* NaN is refused, too. */
        if (!(value >= 0 && value <= 9007199254740992.0) || value != (double)(uint64_t)value)
            Rf_error("%s must be whole numbers from %g on", what, base);
        into[axis] = (uint64_t)value;
    }
    return (int)rank;
}

static terrace_region region_of(SEXP start, SEXP dim, R_xlen_t *cells) {
    terrace_region region = {0};
    region.rank = numbers_of(start, 1, region.offset, "start");
    if (numbers_of(dim, 0, region.count, "dim") != region.rank) Rf_error("start and dim have different lengths");
    double count = 1;
    for (int axis = 0; axis < region.rank; axis++) {
        region.stride[axis] = 1;
        count *= (double)region.count[axis];
    }
    if (count > (double)R_XLEN_T_MAX) Rf_error("so many cells are no R array");
    *cells = (R_xlen_t)count;
    return region;
}

/* R's type for an array's cells. */
static SEXPTYPE type_of(const terrace_array *array) {
    char name[24];
    check(terrace_array_type(array, name, sizeof name, NULL));
    if (strcmp(name, "float64") == 0) return REALSXP;
    if (strcmp(name, "int32") == 0) return INTSXP;
    Rf_error("cells of type %s: R has float64 and int32", name);
}

static SEXP connect_(SEXP root) {
    terrace_session *session = NULL;
    check(terrace_connect(text_of(root, "root"), &session));
    return handle_of(session, "terrace_session", session_close);
}

static SEXP create(SEXP session, SEXP name, SEXP dim, SEXP type, SEXP replace) {
    terrace_session *in = pointer_of(session, "terrace_session");
    terrace_array_spec spec = {.data_type = strcmp(text_of(type, "type"), "integer") ? "float64" : "int32"};
    SEXP extents = PROTECT(Rf_duplicate(dim));
    R_xlen_t last = XLENGTH(extents) - 1;
    if (last >= 0 && ISNAN(REAL(extents)[last])) {
        REAL(extents)[last] = 0;
        spec.unlimited[0] = true;
    }
    spec.rank = numbers_of(extents, 0, spec.shape, "dim");
    UNPROTECT(1);
    terrace_array *array = NULL;
    int how = Rf_asLogical(replace) == TRUE ? TERRACE_REPLACE : TERRACE_NEW;
    check(terrace_array_create(in, text_of(name, "name"), &spec, how, &array));
    return handle_of(array, "terrace_array", array_close);
}

static SEXP open_(SEXP session, SEXP name, SEXP writable) {
    terrace_array *array = NULL;
    terrace_session *in = pointer_of(session, "terrace_session");
    check(terrace_array_open(in, text_of(name, "name"), Rf_asLogical(writable) == TRUE, &array));
    return handle_of(array, "terrace_array", array_close);
}

static SEXP dim(SEXP array) {
    int rank;
    uint64_t shape[TERRACE_RANK_MAX];
    check(terrace_array_shape(pointer_of(array, "terrace_array"), &rank, shape));
    SEXP extents = PROTECT(Rf_allocVector(REALSXP, rank));
    for (int axis = 0; axis < rank; axis++) REAL(extents)[rank - 1 - axis] = (double)shape[axis];
    UNPROTECT(1);
    return extents;
}

static SEXP put(SEXP array, SEXP cells, SEXP start, SEXP dim) {
    terrace_array *into = pointer_of(array, "terrace_array");
    R_xlen_t count;
    terrace_region region = region_of(start, dim, &count);
    SEXPTYPE type = type_of(into);
    if (TYPEOF(cells) != type && !(type == REALSXP && TYPEOF(cells) == INTSXP)) Rf_error("the array has %s cells", Rf_type2char(type));
    if (XLENGTH(cells) != count) Rf_error("%.0f cells for a region of %.0f", (double)XLENGTH(cells), (double)count);
    SEXP same = PROTECT(Rf_coerceVector(cells, type));
    if (type == INTSXP) {
        for (R_xlen_t cell = 0; cell < count; cell++)
            if (INTEGER(same)[cell] == NA_INTEGER) Rf_error("NA is no integer outside of R");
        check(terrace_array_put(into, &region, INTEGER(same), count * sizeof(int)));
    } else {
        check(terrace_array_put(into, &region, REAL(same), count * sizeof(double)));
    }
    UNPROTECT(1);
    return R_NilValue;
}

static SEXP get(SEXP array, SEXP start, SEXP dim) {
    terrace_array *from = pointer_of(array, "terrace_array");
    R_xlen_t count;
    terrace_region region = region_of(start, dim, &count);
    SEXPTYPE type = type_of(from);
    SEXP cells = PROTECT(Rf_allocVector(type, count));
    if (type == INTSXP)
        check(terrace_array_get(from, &region, INTEGER(cells), count * sizeof(int)));
    else
        check(terrace_array_get(from, &region, REAL(cells), count * sizeof(double)));
    /* An R array has its extents as integers. */
    SEXP extents = PROTECT(Rf_coerceVector(dim, INTSXP));
    if (region.rank > 1) Rf_setAttrib(cells, R_DimSymbol, extents);
    UNPROTECT(2);
    return cells;
}

static SEXP flush(SEXP array) {
    check(terrace_array_flush(pointer_of(array, "terrace_array")));
    return R_NilValue;
}

static SEXP tag(SEXP session, SEXP name, SEXP key, SEXP value) {
    terrace_session *in = pointer_of(session, "terrace_session");
    terrace_tag tag = {0};
    if (TYPEOF(value) == STRSXP) {
        tag.tag_type = TERRACE_TAG_TEXT;
        tag.text = text_of(value, "value");
    } else if ((TYPEOF(value) == REALSXP || TYPEOF(value) == INTSXP) && XLENGTH(value) > 0) {
        value = Rf_coerceVector(value, REALSXP);
        tag.tag_type = XLENGTH(value) == 1 ? TERRACE_TAG_FLOAT : TERRACE_TAG_FLOATS;
        tag.real = REAL(value)[0];
        tag.reals = REAL(value);
        tag.count = XLENGTH(value);
    } else {
        Rf_error("a tag is a text, a number or numbers");
    }
    PROTECT(value);
    check(terrace_tag_put(in, text_of(name, "name"), text_of(key, "key"), &tag));
    UNPROTECT(1);
    return R_NilValue;
}

void R_init_terrace(DllInfo *library) {
    static const R_CallMethodDef calls[] = {
        {"C_connect", (DL_FUNC)connect_, 1}, {"C_create", (DL_FUNC)create, 5}, {"C_open", (DL_FUNC)open_, 3},
        {"C_dim", (DL_FUNC)dim, 1},          {"C_put", (DL_FUNC)put, 4},       {"C_get", (DL_FUNC)get, 3},
        {"C_flush", (DL_FUNC)flush, 1},      {"C_tag", (DL_FUNC)tag, 4},       {NULL, NULL, 0},
    };
    R_registerRoutines(library, NULL, calls, NULL, NULL);
    R_useDynamicSymbols(library, FALSE);
}
