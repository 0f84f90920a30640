"""Names that an exported filter can have: of its files, its symbols in C and its namespace in C++."""

from __future__ import annotations

import re

from ..errors import ConfigError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LONGEST = 63
"""Letters of a name, as many as a C compiler tells apart."""
KEYWORDS = _words(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class co_await co_return co_yield compl
    concept const const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast else
    enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
    nullptr operator or or_eq private protected public register reinterpret_cast requires restrict return short signed
    sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid
    typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
    """
)
"""Of C and C++."""
HEADERS = _words(
    """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic
    stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
    aio cpio dirent dlfcn fcntl fmtmsg fnmatch ftw glob grp iconv langinfo libgen libintl monetary mqueue ndbm netdb
    nl_types poll pthread pwd regex sched search semaphore spawn strings stropts syslog tar termios trace ulimit unistd
    utime utmpx wordexp
    a_out aliases alloca ar argp argz byteswap crypt elf endian envz err error execinfo features fstab fts gconv getopt
    gshadow ieee754 ifaddrs lastlog link malloc mcheck memory mntent nss obstack paths printf proc_service pty re_comp
    regexp resolv rpc sgtty shadow stab stdio_ext syscall sysexits thread_db ttyent ucontext ustat utmp values wait
    """
)
"""Headers of C, POSIX and the GNU C library: a file of the same name in the include path would stand before them."""
FUNCTIONS = _words(
    """
    abort abs acos acosh asin asinh atan atan2 atanh atexit atof atoi atol atoll bsearch calloc cbrt ceil clearerr
    copysign cos cosh div div_t drem erf erfc exit exp exp2 expm1 fabs fclose fdim feof ferror fflush fgetc fgetpos
    fgets finite floor fma fmax fmin fmod fopen fpos_t fprintf fputc fputs fread free freopen frexp fscanf fseek fsetpos
    ftell fwrite gamma getc getchar getenv gets hypot ilogb j0 j1 jn jrand48 labs ldexp ldiv ldiv_t lgamma llabs lldiv
    lldiv_t llrint llround log log10 log1p log2 logb lrint lround malloc mblen mbstowcs mbtowc memchr memcmp memcpy
    memmove memset modf nan nearbyint nextafter nexttoward perror pow printf putc putchar puts qsort rand random
    realloc remainder remove remquo rename rewind rint round scalb scalbln scalbn scanf setbuf setvbuf significand
    signgam sin sinh snprintf sprintf sqrt srand sscanf stderr stdin stdout strtod strtof strtol strtold strtoll strtoul
    strtoull system tan tanh tgamma tmpfile tmpnam trunc ungetc vfprintf vfscanf vprintf vscanf vsnprintf vsprintf
    vsscanf wcstombs wctomb y0 y1 yn
    """
)
"""Of the headers that the generated files include: C++ has no namespace of the same name."""
FLOAT_AND_LONG = "fl"
"""Letters after the functions of ``math.h`` for other precisions: ``sinf``, ``sinl``."""
LIBRARIES = _words("c m rt dl util pthread gcc atomic crypt resolv nsl anl stdc")
"""System libraries: the library of a filter is ``lib<name>.a``."""
TARGETS = _words(
    """
    all clean edit_cache help install list_install_components package package_source rebuild_cache test
    uninstall
    """
)
"""Of CMake, and of the generated project."""
NAMESPACES = _words("std posix rclcpp rcl rmw torch at advance")
"""Of the standard, of ROS 2 and of PyTorch, and a name in the generated files."""


def check_name(name: str) -> None:
    """Raise ConfigError unless files, symbols and a namespace may have this name.

    >>> check_name("my_filter")
    >>> check_name("math")
    Traceback (most recent call last):
        ...
    fwnkf.errors.ConfigError: name 'math': math.h belongs to the system, and would be replaced; use for example my_math
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or len(name) > LONGEST:
        raise ConfigError(
            f"name {name[:LONGEST]!r}: wanted a C identifier in lower case of at most {LONGEST} letters, such as "
            "my_filter"
        )
    if name in HEADERS:
        raise ConfigError(
            f"name {name!r}: {name}.h belongs to the system, and would be replaced; use for example my_{name}"
        )
    plain = name[:-1] if name[-1] in FLOAT_AND_LONG else name
    if name in KEYWORDS | LIBRARIES | TARGETS | NAMESPACES or {name, plain} & FUNCTIONS:
        raise ConfigError(
            f"name {name!r} has a meaning in C, C++, CMake, ROS 2 or the generated files; use for example my_{name}"
        )
