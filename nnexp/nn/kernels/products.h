// Products of matrices that fit into the caches, computed in tiles that fit into the registers.

#pragma once
#include <initializer_list>
#include <type_traits>

#include "vectors.h"

namespace {

// A matrix whose i-th row, one number for all rows of a block, starts `gap` vectors after the one before.
template <class T> struct Rows {
    Vec<T>* first;
    long gap;
    Vec<T>* operator[](long i) const { return first + i * gap; }
};

// The sum over p of w[m * across + p * along] * x[p], for outputs m.
template <class T> struct Term {
    const T* w;
    long across, along;
    Rows<T> x;
    long count;
};

// y[m] = start[m], or y[m] where that is null, + two terms
template <class T, int M> inline void tile(Rows<T> y, const T* start, Term<T> one, Term<T> two) {
    Vec<T> sums[M][PARTS];
#pragma GCC unroll 16
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < PARTS; v++) sums[m][v] = start ? splat<T>(start[m]) : y[m][v];
    for (const Term<T>* at : {&one, &two}) {
        const Term<T>& term = *at;
        const T* w = term.w;
        const Vec<T>* x = term.x.first;
        for (long p = 0; p < term.count; p++, w += term.along, x += term.x.gap)
#pragma GCC unroll 16
            for (int m = 0; m < M; m++)
#pragma GCC unroll 16
                for (int v = 0; v < PARTS; v++) sums[m][v] += w[m * term.across] * x[v];
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < PARTS; v++) y[m][v] = sums[m][v];
}

template <class T> void product(Rows<T> y, long count, const T* start, Term<T> one, Term<T> two = {}) {
    long m = 0;
    auto next = [&](auto size) {
        for (; m + size.value <= count; m += size.value) {
            tile<T, size.value>({y[m], y.gap}, start ? start + m : start, one, two);
            one.w += size.value * one.across;
            two.w += size.value * two.across;
        }
    };
    next(std::integral_constant<int, TILE>{});
    next(std::integral_constant<int, 4>{});
    next(std::integral_constant<int, 1>{});
}

// Sums of neighbours: a[2i] + a[2i + 1], followed by b[2i] + b[2i + 1].
template <class T> inline Vec<T> halves(Vec<T> a, Vec<T> b) {
    constexpr int L = BYTES / sizeof(T);
#if defined(__clang__)
    Vec<T> sum;
#pragma GCC unroll 16
    for (int i = 0; i < L; i++) sum[i] = i < L / 2 ? a[2 * i] + a[2 * i + 1] : b[2 * i - L] + b[2 * i - L + 1];
    return sum;
#else
    Mask<T> even, odd;
    for (int i = 0; i < L; i++) even[i] = 2 * i, odd[i] = 2 * i + 1;
    return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd);
#endif
}

// dw[m][n] += sum over positions and rows of d[position][m] * z[position][n]
template <class T>
void outer(T* dw, long M, long N, Rows<T> d, long d_step, Rows<T> z, long z_step, long positions) {
    constexpr int L = BYTES / sizeof(T);
    for (long m = 0; m < M; m += 4)
        for (long n = 0; n < N; n += 4) {
            Vec<T> sums[16] = {};
            const Vec<T>*ds[4], *zs[4];  // an incomplete tile repeats its last row
            for (int i = 0; i < 4; i++) {
                ds[i] = d[m + i < M ? m + i : M - 1];
                zs[i] = z[n + i < N ? n + i : N - 1];
            }
            for (long s = 0; s < positions; s++)
#pragma GCC unroll 16
                for (int v = 0; v < PARTS; v++) {
                    const Vec<T> row[4] = {zs[0][s * z_step + v], zs[1][s * z_step + v], zs[2][s * z_step + v], zs[3][s * z_step + v]};
#pragma GCC unroll 16
                    for (int i = 0; i < 16; i++) sums[i] += ds[i / 4][s * d_step + v] * row[i % 4];
                }
#pragma GCC unroll 16
            for (int count = 8; count >= 16 / L; count /= 2)
#pragma GCC unroll 16
                for (int i = 0; i < count; i++) sums[i] = halves<T>(sums[2 * i], sums[2 * i + 1]);
            const T* totals = (const T*)sums;
            for (int i = 0; i < 16; i++)
                if (m + i / 4 < M && n + i % 4 < N) dw[(m + i / 4) * N + n + i % 4] += totals[i];
        }
}

}  // namespace
