// The macros that a compiler predefines, as far as system headers test them or need an expansion of
// them: a GCC for x86-64, C17 or C++20. They are written here and not taken from a compiler, so
// that the work is the same on every machine with the same headers.
#pragma once

#include <string_view>

namespace tokens {

inline constexpr std::string_view kPredefined = R"(
#define __STDC__ 1
#define __STDC_HOSTED__ 1
#define __STDC_UTF_16__ 1
#define __STDC_UTF_32__ 1
#define __GNUC__ 12
#define __GNUC_MINOR__ 2
#define __GNUC_PATCHLEVEL__ 0
#define __VERSION__ "12.2.0"
#define __NO_INLINE__ 1
#define __CHAR_BIT__ 8
#define __BIGGEST_ALIGNMENT__ 16
#define __ORDER_LITTLE_ENDIAN__ 1234
#define __ORDER_BIG_ENDIAN__ 4321
#define __ORDER_PDP_ENDIAN__ 3412
#define __BYTE_ORDER__ __ORDER_LITTLE_ENDIAN__
#define __FLOAT_WORD_ORDER__ __ORDER_LITTLE_ENDIAN__
#define __amd64 1
#define __amd64__ 1
#define __x86_64 1
#define __x86_64__ 1
#define __MMX__ 1
#define __SSE__ 1
#define __SSE2__ 1
#define __SSE_MATH__ 1
#define __SSE2_MATH__ 1
#define __FINITE_MATH_ONLY__ 0
#define __DBL_DECIMAL_DIG__ 17
#define __DBL_DIG__ 15
#define __DBL_HAS_DENORM__ 1
#define __DBL_HAS_INFINITY__ 1
#define __DBL_HAS_QUIET_NAN__ 1
#define __DBL_IS_IEC_60559__ 2
#define __DBL_MANT_DIG__ 53
#define __DBL_MAX_10_EXP__ 308
#define __DBL_MAX_EXP__ 1024
#define __DBL_MIN_10_EXP__ (-307)
#define __DBL_MIN_EXP__ (-1021)
#define __FLT_DECIMAL_DIG__ 9
#define __FLT_DENORM_MIN__ 1.40129846432481707092372958328991613e-45F
#define __FLT_DIG__ 6
#define __FLT_EPSILON__ 1.19209289550781250000000000000000000e-7F
#define __FLT_EVAL_METHOD_TS_18661_3__ 0
#define __FLT_EVAL_METHOD__ 0
#define __FLT_HAS_DENORM__ 1
#define __FLT_HAS_INFINITY__ 1
#define __FLT_HAS_QUIET_NAN__ 1
#define __FLT_IS_IEC_60559__ 2
#define __FLT_MANT_DIG__ 24
#define __FLT_MAX_10_EXP__ 38
#define __FLT_MAX_EXP__ 128
#define __FLT_MAX__ 3.40282346638528859811704183484516925e+38F
#define __FLT_MIN_10_EXP__ (-37)
#define __FLT_MIN_EXP__ (-125)
#define __FLT_MIN__ 1.17549435082228750796873653722224568e-38F
#define __FLT_NORM_MAX__ 3.40282346638528859811704183484516925e+38F
#define __FLT_RADIX__ 2
#define __LDBL_DECIMAL_DIG__ 21
#define __LDBL_DENORM_MIN__ 3.64519953188247460252840593361941982e-4951L
#define __LDBL_DIG__ 18
#define __LDBL_EPSILON__ 1.08420217248550443400745280086994171e-19L
#define __LDBL_HAS_DENORM__ 1
#define __LDBL_HAS_INFINITY__ 1
#define __LDBL_HAS_QUIET_NAN__ 1
#define __LDBL_IS_IEC_60559__ 2
#define __LDBL_MANT_DIG__ 64
#define __LDBL_MAX_10_EXP__ 4932
#define __LDBL_MAX_EXP__ 16384
#define __LDBL_MAX__ 1.18973149535723176502126385303097021e+4932L
#define __LDBL_MIN_10_EXP__ (-4931)
#define __LDBL_MIN_EXP__ (-16381)
#define __LDBL_MIN__ 3.36210314311209350626267781732175260e-4932L
#define __LDBL_NORM_MAX__ 1.18973149535723176502126385303097021e+4932L
#define __SIZEOF_INT__ 4
#define __SIZEOF_LONG_LONG__ 8
#define __SIZEOF_SHORT__ 2
#define __SIZEOF_FLOAT__ 4
#define __SIZEOF_DOUBLE__ 8
#define __SIZEOF_LONG_DOUBLE__ 16
#define __SIZEOF_FLOAT80__ 16
#define __SIZEOF_FLOAT128__ 16
#define __SIZEOF_INT128__ 16
#define __SIZEOF_POINTER__ 8
#define __SIZEOF_SIZE_T__ 8
#define __SIZEOF_PTRDIFF_T__ 8
#define __SCHAR_MAX__ 0x7f
#define __SHRT_MAX__ 0x7fff
#define __INT_MAX__ 0x7fffffff
#define __LONG_LONG_MAX__ 0x7fffffffffffffffLL
#define __SCHAR_WIDTH__ 8
#define __SHRT_WIDTH__ 16
#define __INT_WIDTH__ 32
#define __LONG_LONG_WIDTH__ 64
#define __SIZE_WIDTH__ 64
#define __PTRDIFF_WIDTH__ 64
#define __UINT32_MAX__ 0xffffffffU
#define __INT8_TYPE__ signed char
#define __INT16_TYPE__ short int
#define __INT32_TYPE__ int
#define __UINT8_TYPE__ unsigned char
#define __UINT16_TYPE__ short unsigned int
#define __UINT32_TYPE__ unsigned int
#define __INT_LEAST8_TYPE__ signed char
#define __UINT_LEAST8_TYPE__ unsigned char
#define __INT_LEAST16_TYPE__ short int
#define __UINT_LEAST16_TYPE__ short unsigned int
#define __INT_LEAST32_TYPE__ int
#define __UINT_LEAST32_TYPE__ unsigned int
#define __INT_FAST8_TYPE__ signed char
#define __UINT_FAST8_TYPE__ unsigned char
#define __SIG_ATOMIC_TYPE__ int
#define __CHAR16_TYPE__ short unsigned int
#define __CHAR32_TYPE__ unsigned int
#define __INT8_C(c) c
#define __INT16_C(c) c
#define __INT32_C(c) c
#define __INT64_C(c) c ## L
#define __UINT64_C(c) c ## UL
#define __INTMAX_C(c) c ## L
#define __UINTMAX_C(c) c ## UL
#define __ATOMIC_RELAXED 0
#define __ATOMIC_CONSUME 1
#define __ATOMIC_ACQUIRE 2
#define __ATOMIC_RELEASE 3
#define __ATOMIC_ACQ_REL 4
#define __ATOMIC_SEQ_CST 5
#define __GCC_ATOMIC_BOOL_LOCK_FREE 2
#define __GCC_ATOMIC_CHAR_LOCK_FREE 2
#define __GCC_ATOMIC_CHAR8_T_LOCK_FREE 2
#define __GCC_ATOMIC_CHAR16_T_LOCK_FREE 2
#define __GCC_ATOMIC_CHAR32_T_LOCK_FREE 2
#define __GCC_ATOMIC_WCHAR_T_LOCK_FREE 2
#define __GCC_ATOMIC_SHORT_LOCK_FREE 2
#define __GCC_ATOMIC_INT_LOCK_FREE 2
#define __GCC_ATOMIC_LONG_LOCK_FREE 2
#define __GCC_ATOMIC_LLONG_LOCK_FREE 2
#define __GCC_ATOMIC_POINTER_LOCK_FREE 2
#define __GCC_ATOMIC_TEST_AND_SET_TRUEVAL 1
#define __GCC_HAVE_DWARF2_CFI_ASM 1
#define __GCC_IEC_559 2
#define __GCC_IEC_559_COMPLEX 2
#define __GCC_CONSTRUCTIVE_SIZE 64
#define __GCC_DESTRUCTIVE_SIZE 64
#define __USER_LABEL_PREFIX__
#define __REGISTER_PREFIX__
)";

inline constexpr std::string_view kPredefinedC = R"(
#define __STDC_VERSION__ 201710L
#define __GNUC_STDC_INLINE__ 1
#define __DBL_DENORM_MIN__ ((double)4.94065645841246544176568792868221372e-324L)
#define __DBL_EPSILON__ ((double)2.22044604925031308084726333618164062e-16L)
#define __DBL_MAX__ ((double)1.79769313486231570814527423731704357e+308L)
#define __DBL_MIN__ ((double)2.22507385850720138309023271733240406e-308L)
#define __DBL_NORM_MAX__ ((double)1.79769313486231570814527423731704357e+308L)
#define _GNU_SOURCE 1
)";

inline constexpr std::string_view kPredefinedCplusplus = R"(
#define __cplusplus 202002L
#define __GNUG__ 12
#define _GNU_SOURCE 1
#define __GXX_WEAK__ 1
#define __DBL_DENORM_MIN__ double(4.94065645841246544176568792868221372e-324L)
#define __DBL_EPSILON__ double(2.22044604925031308084726333618164062e-16L)
#define __DBL_MAX__ double(1.79769313486231570814527423731704357e+308L)
#define __DBL_MIN__ double(2.22507385850720138309023271733240406e-308L)
#define __DBL_NORM_MAX__ double(1.79769313486231570814527423731704357e+308L)
#define __GXX_RTTI 1
#define __GXX_ABI_VERSION 1017
#define __GXX_EXPERIMENTAL_CXX0X__ 1
#define __EXCEPTIONS 1
#define __DEPRECATED 1
#define __GLIBCXX_TYPE_INT_N_0 __int128
#define __GLIBCXX_BITSIZE_INT_N_0 128
#define __STDCPP_DEFAULT_NEW_ALIGNMENT__ 16
#define __STDCPP_THREADS__ 1
#define __cpp_aggregate_paren_init 201902L
#define __cpp_alias_templates 200704L
#define __cpp_aligned_new 201606L
#define __cpp_capture_star_this 201603L
#define __cpp_char8_t 201811L
#define __cpp_concepts 202002L
#define __cpp_conditional_explicit 201806L
#define __cpp_consteval 201811L
#define __cpp_constexpr 202002L
#define __cpp_constexpr_dynamic_alloc 201907L
#define __cpp_constexpr_in_decltype 201711L
#define __cpp_constinit 201907L
#define __cpp_decltype 200707L
#define __cpp_decltype_auto 201304L
#define __cpp_deduction_guides 201907L
#define __cpp_exceptions 199711L
#define __cpp_fold_expressions 201603L
#define __cpp_generic_lambdas 201707L
#define __cpp_hex_float 201603L
#define __cpp_if_constexpr 201606L
#define __cpp_impl_coroutine 201902L
#define __cpp_impl_destroying_delete 201806L
#define __cpp_impl_three_way_comparison 201907L
#define __cpp_inline_variables 201606L
#define __cpp_lambdas 200907L
#define __cpp_noexcept_function_type 201510L
#define __cpp_nontype_template_args 201911L
#define __cpp_nontype_template_parameter_auto 201606L
#define __cpp_range_based_for 201603L
#define __cpp_ref_qualifiers 200710L
#define __cpp_rtti 199711L
#define __cpp_rvalue_references 200610L
#define __cpp_sized_deallocation 201309L
#define __cpp_static_assert 201411L
#define __cpp_structured_bindings 201606L
#define __cpp_template_template_args 201611L
#define __cpp_unicode_characters 201411L
#define __cpp_user_defined_literals 200809L
#define __cpp_using_enum 201907L
#define __cpp_variable_templates 201304L
#define __cpp_variadic_templates 200704L
#define __cpp_variadic_using 201611L
)";

inline constexpr std::string_view kPredefinedLinux = R"(
#define __linux 1
#define __linux__ 1
#define __gnu_linux__ 1
#define __unix 1
#define __unix__ 1
#define __ELF__ 1
#define _LP64 1
#define __LP64__ 1
#define __SIZEOF_LONG__ 8
#define __SIZEOF_WCHAR_T__ 4
#define __SIZEOF_WINT_T__ 4
#define __LONG_MAX__ 0x7fffffffffffffffL
#define __LONG_WIDTH__ 64
#define __WCHAR_MAX__ 0x7fffffff
#define __WCHAR_MIN__ (-__WCHAR_MAX__ - 1)
#define __WINT_MAX__ 0xffffffffU
#define __WINT_MIN__ 0U
#define __SIZE_MAX__ 0xffffffffffffffffUL
#define __PTRDIFF_MAX__ 0x7fffffffffffffffL
#define __UINT64_MAX__ 0xffffffffffffffffUL
#define __INTMAX_MAX__ 0x7fffffffffffffffL
#define __UINTMAX_MAX__ 0xffffffffffffffffUL
#define __SIZE_TYPE__ long unsigned int
#define __PTRDIFF_TYPE__ long int
#define __WCHAR_TYPE__ int
#define __WINT_TYPE__ unsigned int
#define __INTMAX_TYPE__ long int
#define __UINTMAX_TYPE__ long unsigned int
#define __INT64_TYPE__ long int
#define __UINT64_TYPE__ long unsigned int
#define __INT_LEAST64_TYPE__ long int
#define __UINT_LEAST64_TYPE__ long unsigned int
#define __INT_FAST16_TYPE__ long int
#define __UINT_FAST16_TYPE__ long unsigned int
#define __INT_FAST32_TYPE__ long int
#define __UINT_FAST32_TYPE__ long unsigned int
#define __INT_FAST64_TYPE__ long int
#define __UINT_FAST64_TYPE__ long unsigned int
#define __INTPTR_TYPE__ long int
#define __UINTPTR_TYPE__ long unsigned int
)";

inline constexpr std::string_view kPredefinedWindows = R"(
#define _WIN32 1
#define WIN32 1
#define __WIN32 1
#define __WIN32__ 1
#define _WIN64 1
#define WIN64 1
#define __WIN64 1
#define __WIN64__ 1
#define __MINGW32__ 1
#define __MINGW64__ 1
#define __MSVCRT__ 1
#define __SEH__ 1
#define __declspec(x) __attribute__((x))
#define __cdecl __attribute__((__cdecl__))
#define __stdcall __attribute__((__stdcall__))
#define __fastcall __attribute__((__fastcall__))
#define __thiscall __attribute__((__thiscall__))
#define __SIZEOF_LONG__ 4
#define __SIZEOF_WCHAR_T__ 2
#define __SIZEOF_WINT_T__ 2
#define __LONG_MAX__ 0x7fffffffL
#define __LONG_WIDTH__ 32
#define __WCHAR_MAX__ 0xffff
#define __WCHAR_MIN__ 0
#define __SIZE_MAX__ 0xffffffffffffffffULL
#define __PTRDIFF_MAX__ 0x7fffffffffffffffLL
#define __SIZE_TYPE__ long long unsigned int
#define __PTRDIFF_TYPE__ long long int
#define __WCHAR_TYPE__ short unsigned int
#define __WINT_TYPE__ short unsigned int
#define __INTMAX_TYPE__ long long int
#define __UINTMAX_TYPE__ long long unsigned int
#define __INT64_TYPE__ long long int
#define __UINT64_TYPE__ long long unsigned int
#define __INT_LEAST64_TYPE__ long long int
#define __UINT_LEAST64_TYPE__ long long unsigned int
#define __INT_FAST16_TYPE__ short int
#define __UINT_FAST16_TYPE__ short unsigned int
#define __INT_FAST32_TYPE__ int
#define __UINT_FAST32_TYPE__ unsigned int
#define __INT_FAST64_TYPE__ long long int
#define __UINT_FAST64_TYPE__ long long unsigned int
#define __INTPTR_TYPE__ long long int
#define __UINTPTR_TYPE__ long long unsigned int
)";

}  // namespace tokens
