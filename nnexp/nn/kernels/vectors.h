// SIMD vectors, and elementary functions of them with errors of a few units in the last place.

#pragma once
#include <cstdint>

namespace {

#if defined(__AVX512F__)
constexpr int BYTES = 64, TILE = 8;
#elif defined(__AVX__)
constexpr int BYTES = 32, TILE = 2;
#else
constexpr int BYTES = 16, TILE = 2;
#endif
constexpr int PARTS = 128 / BYTES;  // vectors that hold one number for all rows of a block

template <class T> constexpr int ROWS = 128 / sizeof(T);

template <class Float> struct Number;
template <> struct Number<float> {
    using Int = int32_t;
    static constexpr int mantissa = 23, bias = 127, terms = 7;
    static constexpr float low = -87, high = 89, flat = -20, round = 0x1.8p23f, log2e = 0x1.715476p0f;
    static constexpr float ln2 = 0x1.62e4p-1f, ln2_rest = 0x1.7f7d1cp-20f;
};
template <> struct Number<double> {
    using Int = int64_t;
    static constexpr int mantissa = 52, bias = 1023, terms = 13;
    static constexpr double low = -708, high = 710, flat = -40, round = 0x1.8p52, log2e = 0x1.71547652b82fep0;
    static constexpr double ln2 = 0x1.62e42fefa3800p-1, ln2_rest = 0x1.ef35793c76730p-45;
};

template <class T> struct Vector {
    typedef T type __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
};
template <class T> using Vec = typename Vector<T>::type;
template <class T> using Mask = Vec<typename Number<T>::Int>;

template <class T> inline Vec<T> splat(T value) { return value - Vec<T>{}; }

constexpr double inverse_factorial(int n) { return n < 2 ? 1.0 : inverse_factorial(n - 1) / n; }

// For y = n ln 2 + r compute 2^n, and e^r - 1 by its Taylor series up to a term below half a unit in the last place.
template <class T> inline void exponential(Vec<T> y, Vec<T>& scale, Vec<T>& rest) {
    using N = Number<T>;
    Vec<T> shifted = y * N::log2e + N::round;  // the last bits hold the integer n
    Vec<T> n = shifted - N::round;
    scale = (Vec<T>)(((Mask<T>)shifted << N::mantissa) + ((typename N::Int)N::bias << N::mantissa));
    Vec<T> r = y - n * N::ln2 - n * N::ln2_rest;
    Vec<T> sum = r * T(inverse_factorial(N::terms)) + T(inverse_factorial(N::terms - 1));
#pragma GCC unroll 16
    for (int k = N::terms - 2; k > 1; k--) sum = sum * r + T(inverse_factorial(k));
    rest = sum * r * r + r;
}

template <class T> inline Vec<T> exp(Vec<T> x) {  // for x <= 0
    using N = Number<T>;
    Vec<T> scale, rest;
    exponential<T>(x < N::low ? splat<T>(N::low) : x, scale, rest);
    return scale * (1 + rest);
}

template <class T> inline Vec<T> sigmoid(Vec<T> x) {  // NaN fails all comparisons and is returned
    using N = Number<T>;
    Vec<T> y = -x, scale, rest;
    y = y < N::low ? splat<T>(N::low) : y;
    y = y > N::high ? splat<T>(N::high) : y;  // where 2^n is infinite
    exponential<T>(y, scale, rest);
    return 1 / (1 + scale * (1 + rest));
}

template <class T> inline Vec<T> tanh(Vec<T> x) {  // by e^-2|x| - 1, which keeps its accuracy near 0
    using N = Number<T>;
    const Mask<T> sign = (Mask<T>)x & (typename N::Int)((uint64_t)1 << (8 * sizeof(T) - 1));
    Vec<T> y = (Vec<T>)((Mask<T>)x ^ sign) * -2, scale, rest;
    y = y < N::flat ? splat<T>(N::flat) : y;
    exponential<T>(y, scale, rest);
    Vec<T> e = scale * rest + (scale - 1);
    return (Vec<T>)((Mask<T>)(-e / (2 + e)) | sign);
}

constexpr bool CAN_SHUFFLE =
#if defined(__clang__)
    false;
#else
    true;
#endif

// Transpose as many vectors as each has numbers, in place.
template <class T> inline void transpose(Vec<T>* rows) {
#if !defined(__clang__)
    constexpr int L = BYTES / sizeof(T);
#pragma GCC unroll 4
    for (int step = 1; step < L; step *= 2) {
        Mask<T> low, high;
        for (int j = 0; j < L; j++) {
            low[j] = j & step ? L + j - step : j;
            high[j] = j & step ? L + j : j + step;
        }
#pragma GCC unroll 16
        for (int i = 0; i < L; i++)
            if (!(i & step)) {
                const Vec<T> a = rows[i], b = rows[i + step];
                rows[i] = __builtin_shuffle(a, b, low), rows[i + step] = __builtin_shuffle(a, b, high);
            }
    }
#endif
}

// gather: dst[p][b] = src[b * stride + p], with zeros for missing rows; scatter: the inverse
template <class T> void gather(Vec<T>* dst, const T* src, long stride, long count, long rows) {
    constexpr int L = BYTES / sizeof(T);
    for (long first = 0; first < ROWS<T>; first += L, dst++, src += L * stride, rows -= L) {
        long p = 0;
        for (; CAN_SHUFFLE && rows >= L && p + L <= count; p += L) {
            Vec<T> tile[L];
#pragma GCC unroll 16
            for (int b = 0; b < L; b++) tile[b] = *(const Vec<T>*)(src + b * stride + p);
            transpose<T>(tile);
#pragma GCC unroll 16
            for (int i = 0; i < L; i++) dst[(p + i) * PARTS] = tile[i];
        }
        for (; p < count; p++)
            for (long b = 0; b < L; b++) ((T*)(dst + p * PARTS))[b] = b < rows ? src[b * stride + p] : 0;
    }
}
template <class T> void scatter(T* dst, const Vec<T>* src, long stride, long count, long rows) {
    constexpr int L = BYTES / sizeof(T);
    for (; rows > 0; src++, dst += L * stride, rows -= L) {
        long p = 0;
        for (; CAN_SHUFFLE && rows >= L && p + L <= count; p += L) {
            Vec<T> tile[L];
#pragma GCC unroll 16
            for (int i = 0; i < L; i++) tile[i] = src[(p + i) * PARTS];
            transpose<T>(tile);
#pragma GCC unroll 16
            for (int b = 0; b < L; b++) *(Vec<T>*)(dst + b * stride + p) = tile[b];
        }
        for (; p < count; p++)
            for (long b = 0; b < L && b < rows; b++) dst[b * stride + p] = ((const T*)(src + p * PARTS))[b];
    }
}

}  // namespace
