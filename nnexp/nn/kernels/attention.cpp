// Attention for many lanes, rows and heads, one after the other, so that the data of each stays in the caches.
//
// B rows, N positions, embedding size E, D = E / heads. Rows are processed in blocks of ROWS, and every array of a
// block has the rows as its last axis, so that any N and D fill whole vectors. The backward pass recomputes the
// attention weights of a query, which costs less than storing them. Results do not depend on other lanes, their number
// or the alignment of memory.

#include <cmath>
#include <type_traits>

#include "scratch.h"
#include "vectors.h"

namespace {

extern "C" struct Problem {
    int64_t lanes, rows, positions, size, heads, is_double, is_causal;
    const int64_t* lengths;  // (K, B) or null
    const void *qkv, *grad;  // (K, B, N, 3E), (K, B, N, E)
    void *mixed, *dqkv;      // (K, B, N, E), (K, B, N, 3E)
};

// View of one vector of a block's rows: `size` numbers at each position, `gap` numbers from one position to the next.
template <class T> struct Part {
    Vec<T>* first;
    long gap, size;
    Vec<T>& operator()(long position, long number) const { return first[(position * gap + number) * PARTS]; }
    Part at(long position) const { return {&(*this)(position, 0), gap, size}; }
};

// y[j] = a . b[j]
template <class T> inline void dots(Part<T> y, Part<T> a, Part<T> b, long count) {
    long j = 0;
    auto next = [&](auto tile) {
        for (; j + tile.value <= count; j += tile.value) {
            Vec<T> sums[tile.value] = {};
            for (long e = 0; e < a.size; e++)
#pragma GCC unroll 4
                for (int m = 0; m < tile.value; m++) sums[m] += a(0, e) * b(j + m, e);
            for (int m = 0; m < tile.value; m++) y(j + m, 0) = sums[m];
        }
    };
    next(std::integral_constant<int, 4>{});
    next(std::integral_constant<int, 1>{});
}

// y = sum over j of w[j] b[j]
template <class T> inline void mix(Part<T> y, Part<T> w, Part<T> b, long count) {
    long e = 0;
    auto next = [&](auto tile) {
        for (; e + tile.value <= y.size; e += tile.value) {
            Vec<T> sums[tile.value] = {};
            for (long j = 0; j < count; j++)
#pragma GCC unroll 4
                for (int m = 0; m < tile.value; m++) sums[m] += w(j, 0) * b(j, e + m);
            for (int m = 0; m < tile.value; m++) y(0, e + m) = sums[m];
        }
    };
    next(std::integral_constant<int, 4>{});
    next(std::integral_constant<int, 1>{});
}

// y[j] += w[j] a
template <class T> inline void add(Part<T> y, Part<T> w, Part<T> a, long count) {
    for (long j = 0; j < count; j++)
        for (long e = 0; e < a.size; e++) y(j, e) += w(j, 0) * a(0, e);
}

// w = softmax of (q . k[j] / sqrt(D)) over the positions before `end`
template <class T> inline void weigh(Part<T> w, Part<T> q, Part<T> k, long count, Mask<T> end, T scale) {
    using Int = typename Number<T>::Int;
    dots(w, q, k, count);
    Vec<T> most = w(0, 0), sum = {};
    for (long j = 1; j < count; j++) most = (w(j, 0) > most) & (end > Int(j)) ? w(j, 0) : most;
    for (long j = 0; j < count; j++) {
        w(j, 0) = end > Int(j) ? exp<T>((w(j, 0) - most) * scale) : Vec<T>{};
        sum += w(j, 0);
    }
    sum = 1 / sum;
    for (long j = 0; j < count; j++) w(j, 0) *= sum;
}

template <class T> struct Lanes {
    const Problem& p;
    const long B = p.rows, N = p.positions, E = p.size, D = E / p.heads;
    const T scale = 1 / std::sqrt(T(D));
    Vec<T>*qkv = {}, *mixed = {}, *dqkv = {}, *weight = {}, *d = {};

    void run(bool is_backward) {
        qkv = (Vec<T>*)scratch.get(N * (7 * E + 2) * PARTS * BYTES);
        mixed = qkv + N * 3 * E * PARTS, dqkv = mixed + N * E * PARTS;
        weight = dqkv + N * 3 * E * PARTS, d = weight + N * PARTS;
        for (long row = 0; row < p.lanes * B; row += in_block(row)) is_backward ? backward(row) : forward(row);
    }

    // Number of rows in the block at `row`. Rows are numbered across lanes, but a block has rows of one lane only.
    long in_block(long row) const { return B - row % B < ROWS<T> ? B - row % B : ROWS<T>; }

    void forward(long row) const {
        get((const T*)p.qkv, 3 * E, row, qkv);
        each(row, [&](const Query& at) {
            weigh(weights(at, weight), part(at, qkv, 3, 0).at(at.i), part(at, qkv, 3, 1), at.count, at.end, scale);
            mix(part(at, mixed, 1, 0).at(at.i), weights(at, weight), part(at, qkv, 3, 2), at.count);
        });
        give((T*)p.mixed, E, row, mixed);
    }

    void backward(long row) const {
        get((const T*)p.qkv, 3 * E, row, qkv);
        get((const T*)p.grad, E, row, mixed);
        std::memset(dqkv, 0, N * 3 * E * PARTS * BYTES);
        each(row, [&](const Query& at) {
            const Part<T> q = part(at, qkv, 3, 0).at(at.i), k = part(at, qkv, 3, 1), v = part(at, qkv, 3, 2);
            const Part<T> grad = part(at, mixed, 1, 0).at(at.i), w = weights(at, weight), dw = weights(at, d);
            weigh(w, q, k, at.count, at.end, scale);
            dots(dw, grad, v, at.count);
            add(part(at, dqkv, 3, 2), w, grad, at.count);
            Vec<T> mean = {};
            for (long j = 0; j < at.count; j++) mean += w(j, 0) * dw(j, 0);
            for (long j = 0; j < at.count; j++) dw(j, 0) = w(j, 0) * (dw(j, 0) - mean) * scale;
            mix(part(at, dqkv, 3, 0).at(at.i), dw, k, at.count);
            add(part(at, dqkv, 3, 1), dw, q, at.count);
        });
        give((T*)p.dqkv, 3 * E, row, dqkv);
    }

    // A query: its head, its position, the number of keys it reads, its vector of rows, and the length of each row.
    struct Query {
        long head, i, count;
        int vector;
        Mask<T> end;
    };

    // One of the `all` arrays of a position: 0 query, 1 key, 2 value.
    Part<T> part(const Query& at, Vec<T>* x, long all, long which) const {
        return {x + (which * E + at.head * D) * PARTS + at.vector, all * E, D};
    }
    Part<T> weights(const Query& at, Vec<T>* x) const { return {x + at.vector, 1, 1}; }

    template <class F> void each(long row, F f) const {
        Mask<T> ends[PARTS];
        constexpr int L = BYTES / sizeof(T);
        for (long r = 0; r < ROWS<T>; r++) ends[r / L][r % L] = p.lengths && r < in_block(row) ? p.lengths[row + r] : N;
        for (long head = 0; head < p.heads; head++)
            for (int v = 0; v < PARTS; v++)
                for (long i = 0; i < N; i++) f(Query{head, i, p.is_causal ? i + 1 : N, v, ends[v]});
    }

    void get(const T* x, long width, long row, Vec<T>* to) const {
        for (long t = 0; t < N; t++)
            gather<T>(to + t * width * PARTS, x + (row * N + t) * width, N * width, width, in_block(row));
    }
    void give(T* x, long width, long row, const Vec<T>* given) const {
        for (long t = 0; t < N; t++)
            scatter<T>(x + (row * N + t) * width, given + t * width * PARTS, N * width, width, in_block(row));
    }
};
}  // namespace

extern "C" void nnexp_attention(const Problem* p, int64_t is_backward) {
    p->is_double ? Lanes<double>{*p}.run(is_backward) : Lanes<float>{*p}.run(is_backward);
}
