// Layers over time for many lanes, one after the other: the weights of a lane stay in L1, its states in L2.
//
// B rows, T positions, C channels, H units, G gates. Rows are taken in blocks of ROWS, and every array of a block has
// the rows as its last axis, so that any H fills whole vectors. Positions of a block are kept in the order in which
// they are read. Nothing depends on other lanes, on their number or on where memory is aligned.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <type_traits>

namespace {

#if defined(__AVX512F__)
constexpr int BYTES = 64, TILE = 8;
#elif defined(__AVX__)
constexpr int BYTES = 32, TILE = 2;
#else
constexpr int BYTES = 16, TILE = 2;
#endif
constexpr int PARTS = 128 / BYTES;  // vectors that hold one number of all rows of a block

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

// y = n ln 2 + r: 2^n, and e^r - 1 by its Taylor series, whose first term left out is below half a unit of the last place.
template <class T> inline void exponential(Vec<T> y, Vec<T>& scale, Vec<T>& rest) {
    using N = Number<T>;
    Vec<T> shifted = y * N::log2e + N::round;  // the integer n stands in the last bits
    Vec<T> n = shifted - N::round;
    scale = (Vec<T>)(((Mask<T>)shifted << N::mantissa) + ((typename N::Int)N::bias << N::mantissa));
    Vec<T> r = y - n * N::ln2 - n * N::ln2_rest;
    Vec<T> sum = r * T(inverse_factorial(N::terms)) + T(inverse_factorial(N::terms - 1));
#pragma GCC unroll 16
    for (int k = N::terms - 2; k > 1; k--) sum = sum * r + T(inverse_factorial(k));
    rest = sum * r * r + r;
}

template <class T> inline Vec<T> sigmoid(Vec<T> x) {  // a NaN passes through all comparisons
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

// sum over p of w[m * across + p * along] * x[p], for outputs m
template <class T> struct Term {
    const T* w;
    long across, along;
    const Vec<T>* x;
    long count;
};

// y[m] = start[m], or y[m] where that is null, + two terms
template <class T, int M> inline void tile(Vec<T>* y, const T* start, Term<T> one, Term<T> two) {
    Vec<T> sums[M][PARTS];
#pragma GCC unroll 16
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < PARTS; v++) sums[m][v] = start ? splat<T>(start[m]) : y[m * PARTS + v];
    for (const Term<T>* at : {&one, &two}) {
        const Term<T>& term = *at;
        const T* w = term.w;
        for (long p = 0; p < term.count; p++, w += term.along)
#pragma GCC unroll 16
            for (int m = 0; m < M; m++)
#pragma GCC unroll 16
                for (int v = 0; v < PARTS; v++) sums[m][v] += w[m * term.across] * term.x[p * PARTS + v];
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < PARTS; v++) y[m * PARTS + v] = sums[m][v];
}

template <class T> void product(Vec<T>* y, long count, const T* start, Term<T> one, Term<T> two = {}) {
    long m = 0;
    auto next = [&](auto size) {
        for (; m + size.value <= count; m += size.value) {
            tile<T, size.value>(y + m * PARTS, start ? start + m : start, one, two);
            one.w += size.value * one.across;
            two.w += size.value * two.across;
        }
    };
    next(std::integral_constant<int, TILE>{});
    next(std::integral_constant<int, 1>{});
}

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif

// lanes 2i and 2i+1 of a, then of b, added
template <class T> inline Vec<T> halves(Vec<T> a, Vec<T> b) {
    constexpr int L = BYTES / sizeof(T);
    Mask<T> even, odd;
    for (int i = 0; i < L; i++) even[i] = 2 * i, odd[i] = 2 * i + 1;
    return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd);
}

// dw[m][n] += sum over positions and rows of d[position][m] * z[position][n]
template <class T>
void outer(T* dw, long M, long N, const Vec<T>* d, long d_step, const Vec<T>* z, long z_step, long positions) {
    constexpr int L = BYTES / sizeof(T);
    for (long m = 0; m < M; m += 4)
        for (long n = 0; n < N; n += 4) {
            Vec<T> sums[16] = {};
            const Vec<T>*ds[4], *zs[4];  // a tile that is not whole repeats its last row
            for (int i = 0; i < 4; i++) {
                ds[i] = d + (m + i < M ? m + i : M - 1) * PARTS;
                zs[i] = z + (n + i < N ? n + i : N - 1) * PARTS;
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

// dst[p][b] = src[b * stride + p], and back; rows that are missing are zero
template <class T> void gather(Vec<T>* dst, const T* src, long stride, long count, long rows) {
    T* to = (T*)dst;
    for (long p = 0; p < count; p++)
        for (long b = 0; b < ROWS<T>; b++) to[p * ROWS<T> + b] = b < rows ? src[b * stride + p] : 0;
}
template <class T> void scatter(T* dst, const Vec<T>* src, long stride, long count, long rows) {
    const T* from = (const T*)src;
    for (long b = 0; b < rows; b++)
        for (long p = 0; p < count; p++) dst[b * stride + p] = from[p * ROWS<T> + b];
}

enum Mode { RNN_TANH, RNN_RELU, LSTM, GRU };
constexpr int gates(int mode) { return mode == LSTM ? 4 : mode == GRU ? 3 : 1; }
constexpr int kept_by(int mode) { return mode < LSTM ? 1 : 4; }  // numbers of a unit that backward needs

// One number of the step of a cell, n numbers apart from one gate to the next. GRU sums its n gate in two parts.
template <class T, int MODE> inline void activate(const Vec<T>* sums, Vec<T>* kept, long n) {
    if constexpr (MODE == RNN_TANH) kept[0] = tanh<T>(sums[0]);
    if constexpr (MODE == RNN_RELU) kept[0] = sums[0] < 0 ? Vec<T>{} : sums[0];
    if constexpr (MODE == LSTM) {
        kept[0] = sigmoid<T>(sums[0]), kept[n] = sigmoid<T>(sums[n]);
        kept[2 * n] = tanh<T>(sums[2 * n]), kept[3 * n] = sigmoid<T>(sums[3 * n]);
    }
    if constexpr (MODE == GRU) {
        kept[0] = sigmoid<T>(sums[0]), kept[n] = sigmoid<T>(sums[n]), kept[3 * n] = sums[3 * n];
        kept[2 * n] = tanh<T>(sums[2 * n] + kept[0] * sums[3 * n]);
    }
}

// The states after it, from those before; `bent` is tanh(c)
template <class T, int MODE>
inline void advance(const Vec<T>* kept, long n, Mask<T> ok, Vec<T>& h, Vec<T>& c, Vec<T>& bent) {
    Vec<T> next;
    if constexpr (MODE < LSTM) next = kept[0];
    if constexpr (MODE == LSTM) {
        c = ok ? kept[n] * c + kept[0] * kept[2 * n] : c;
        bent = tanh<T>(c);
        next = kept[3 * n] * bent;
    }
    if constexpr (MODE == GRU) next = (1 - kept[n]) * kept[2 * n] + kept[n] * h;
    h = ok ? next : h;
}

// From the gradients of the states after it those of the sums, and of the states before where they skip the weights
template <class T, int MODE>
inline void retreat(const Vec<T>* kept, long n, Mask<T> ok, Vec<T> h, Vec<T> c, Vec<T> bent, Vec<T>* d, Vec<T>& dh, Vec<T>& dc) {
    Vec<T> none = {}, skips = none;
    if constexpr (MODE == RNN_TANH) d[0] = ok ? dh * (1 - kept[0] * kept[0]) : none;
    if constexpr (MODE == RNN_RELU) d[0] = ok & (kept[0] > 0) ? dh : none;
    if constexpr (MODE == LSTM) {
        Vec<T> i = kept[0], f = kept[n], g = kept[2 * n], o = kept[3 * n], all = dc + dh * o * (1 - bent * bent);
        d[0] = ok ? all * g * (i * (1 - i)) : none;
        d[n] = ok ? all * c * (f * (1 - f)) : none;
        d[2 * n] = ok ? all * i * (1 - g * g) : none;
        d[3 * n] = ok ? dh * bent * (o * (1 - o)) : none;
        dc = ok ? all * f : dc;
    }
    if constexpr (MODE == GRU) {
        Vec<T> r = kept[0], z = kept[n], g = kept[2 * n], dg = dh * (1 - z) * (1 - g * g);
        d[0] = ok ? dg * kept[3 * n] * (r * (1 - r)) : none;
        d[n] = ok ? dh * (h - g) * (z * (1 - z)) : none;
        d[2 * n] = ok ? dg : none;
        d[3 * n] = ok ? dg * r : none;
        skips = dh * z;
    }
    dh = ok ? skips : dh;
}

extern "C" struct Problem {
    int64_t lanes, rows, positions, channels, units, mode, is_double, is_reverse, is_whole;
    const int64_t* lengths;                          // (K, B) or null
    const void *x, *w_ih, *w_hh, *b_ih, *b_hh;       // (K, B, T, C), (K, GH, C), (K, GH, H), (K, GH) or null
    void *states, *kept;                             // (K, B, T, H), or (K, B, H) the last; (K, blocks, T, kept, H, ROWS)
    const void* grad;                                // of the states
    void *dx, *dw_ih, *dw_hh, *db_ih, *db_hh;        // null, or zeros of the shapes of x to b_hh
};

struct Scratch {  // kept from call to call: fresh memory costs more than the work in it
    void* memory = nullptr;
    size_t size = 0;
    ~Scratch() { std::free(memory); }
    void* get(size_t wanted) {
        wanted = (wanted + 127) / 128 * 128;
        if (size < wanted) std::free(memory), memory = std::aligned_alloc(128, wanted), size = wanted;
        return memory;
    }
};
thread_local Scratch scratch;

template <class T, int MODE> struct Lane {
    static constexpr int G = gates(MODE), S = MODE == GRU ? 4 : G, KEPT = kept_by(MODE);
    static constexpr int CHUNK = 16, BOTH = MODE == GRU ? 2 : G;
    const Problem& p;
    const long lane, B = p.rows, N = p.positions, C = p.channels, H = p.units, n = H * PARTS;
    const T *x = at(p.x, B * N * C), *w_ih = at(p.w_ih, G * H * C), *w_hh = at(p.w_hh, G * H * H);
    const T *b_ih = at(p.b_ih, G * H), *b_hh = at(p.b_hh, G * H);

    template <class P> P* offset(P* all, long size) const { return all ? all + lane * size : nullptr; }
    const T* at(const void* all, long size) const { return offset((const T*)all, size); }
    T* at(void* all, long size) const { return offset((T*)all, size); }
    long position(long s) const { return p.is_reverse ? N - 1 - s : s; }
    long in_block(long first) const { return B - first < ROWS<T> ? B - first : ROWS<T>; }
    Vec<T>* kept(long first, long s) const {
        const long blocks = (B + ROWS<T> - 1) / ROWS<T>;
        return (Vec<T>*)p.kept + ((lane * blocks + first / ROWS<T>) * N + s) * KEPT * n;
    }
    void valid(Mask<T>* ok, long first, long s) const {
        for (int i = 0; i < ROWS<T>; i++) {
            const long b = first + i, length = b >= B ? 0 : p.lengths ? p.lengths[lane * B + b] : N;
            ok[i * PARTS / ROWS<T>][i % (ROWS<T> / PARTS)] = position(s) < length ? -1 : 0;
        }
    }

    void forward() const {
        Vec<T>*h = (Vec<T>*)scratch.get((C * PARTS + (2 + S) * n + S * H) * BYTES), *c = h + n, *sums = c + n, *z = sums + S * n;
        T* start = (T*)(z + C * PARTS);
        for (long j = 0; j < S * H; j++) {
            const bool is_split = MODE == GRU && j >= 2 * H;
            const T in = b_ih && j < 3 * H + (MODE != GRU) * H ? b_ih[j] : 0;
            const T back = b_hh && !(is_split && j < 3 * H) ? b_hh[is_split ? j - H : j] : 0;
            start[j] = in + back;
        }
        for (long first = 0; first < B; first += ROWS<T>) {
            const long rows = in_block(first);
            Mask<T> ok[PARTS];
            std::memset(h, 0, 2 * n * sizeof(Vec<T>));
            for (long s = 0; s < N; s++) {
                const long t = position(s);
                gather<T>(z, x + (first * N + t) * C, N * C, C, rows);
                const long both = BOTH * H, known = s ? H : 0;  // h is zero at first
                product<T>(sums, both, start, {w_ih, C, 1, z, C}, {w_hh, H, 1, h, known});
                if constexpr (MODE == GRU) {
                    product<T>(sums + 2 * n, H, start + 2 * H, {w_ih + 2 * H * C, C, 1, z, C});
                    product<T>(sums + 3 * n, H, start + 3 * H, {w_hh + 2 * H * H, H, 1, h, known});
                }
                valid(ok, first, s);
                Vec<T>*now = kept(first, s), bent;
                for (long i = 0; i < n; i++) {
                    for (int g = 0; g < KEPT; g++) __builtin_prefetch(now + (KEPT + g) * n + i, 1);
                    activate<T, MODE>(sums + i, now + i, n);
                    advance<T, MODE>(now + i, n, ok[i % PARTS], h[i], c[i], bent);
                }
                if (p.is_whole) scatter<T>(at(p.states, B * N * H) + (first * N + t) * H, h, N * H, H, rows);
            }
            if (!p.is_whole) scatter<T>(at(p.states, B * H) + first * H, h, H, H, rows);
        }
    }

    void backward() const {
        T* dx = at(p.dx, B * N * C);
        const long x_step = (C + 1) * PARTS, h_step = n + PARTS, d_step = S * n + PARTS;
        Vec<T>* h = (Vec<T>*)scratch.get(((3 * N + 5) * h_step + CHUNK * d_step + (N + 1) * x_step) * BYTES);
        Vec<T> *c = h + (N + 1) * h_step, *bent = c + (N + 1) * h_step, *d = bent + N * h_step, *z = d + CHUNK * d_step;
        Vec<T> *dh = z + N * x_step, *dc = dh + n, *more = dc + n;
        for (long first = 0; first < B; first += ROWS<T>) {
            const long rows = in_block(first);
            Mask<T> ok[PARTS];
            std::memset(h, 0, n * sizeof(Vec<T>)), std::memset(c, 0, n * sizeof(Vec<T>));
            for (long s = 0; s < N; s++) {
                gather<T>(z + s * x_step, x + (first * N + position(s)) * C, N * C, C, rows);
                valid(ok, first, s);
                const Vec<T>* now = kept(first, s);
                for (long i = s * h_step, j = 0; j < n; i++, j++) {
                    h[i + h_step] = h[i], c[i + h_step] = c[i];
                    for (int g = 0; g < KEPT; g++) __builtin_prefetch(now + (KEPT + g) * n + j);
                    advance<T, MODE>(now + j, n, ok[j % PARTS], h[i + h_step], c[i + h_step], bent[i]);
                }
            }
            std::memset(dh, 0, 2 * n * sizeof(Vec<T>));
            if (!p.is_whole) gather<T>(dh, at(p.grad, B * H) + first * H, H, H, rows);
            for (long s = N - 1; s >= 0; s--) {
                const long t = position(s);
                if (p.is_whole) {
                    gather<T>(more, at(p.grad, B * N * H) + (first * N + t) * H, N * H, H, rows);
                    for (long i = 0; i < n; i++) dh[i] += more[i];
                }
                valid(ok, first, s);
                const Vec<T>* now = kept(first, s);
                Vec<T>* ds = d + s % CHUNK * d_step;
                for (long i = 0, j = s * h_step; i < n; i++, j++)
                    retreat<T, MODE>(now + i, n, ok[i % PARTS], h[j], c[j], bent[j], ds + i, dh[i], dc[i]);
                if (s) {
                    product<T>(dh, H, nullptr, {w_hh, 1, H, ds, BOTH * H});
                    if (MODE == GRU) product<T>(dh, H, nullptr, {w_hh + 2 * H * H, 1, H, ds + 3 * n, H});
                }
                if (dx) {
                    std::memset(more, 0, C * PARTS * sizeof(Vec<T>));
                    product<T>(more, C, nullptr, {w_ih, 1, C, ds, G * H});
                    scatter<T>(dx + (first * N + t) * C, more, N * C, C, rows);
                }
                if (s % CHUNK == 0) {
                    const long count = N - s < CHUNK ? N - s : CHUNK;
                    weights(d, d_step, z + s * x_step, x_step, h + s * h_step, h_step, count);
                }
            }
        }
    }

    void weights(const Vec<T>* d, long d_step, const Vec<T>* z, long x_step, const Vec<T>* h, long h_step, long count) const {
        T *dw_ih = at(p.dw_ih, G * H * C), *dw_hh = at(p.dw_hh, G * H * H);
        T *db_ih = at(p.db_ih, G * H), *db_hh = at(p.db_hh, G * H);
        outer<T>(dw_ih, G * H, C, d, d_step, z, x_step, count);
        outer<T>(dw_hh, BOTH * H, H, d, d_step, h, h_step, count);
        if (MODE == GRU) outer<T>(dw_hh + BOTH * H * H, H, H, d + 3 * n, d_step, h, h_step, count);
        if (db_ih) total(db_ih, d, d_step, G * H, count), total(db_hh, d, d_step, BOTH * H, count);
        if (db_ih && MODE == GRU) total(db_hh + BOTH * H, d + 3 * n, d_step, H, count);
    }

    void total(T* db, const Vec<T>* d, long d_step, long size, long count) const {
        for (long j = 0; j < size; j++) {
            Vec<T> sum = {};
            for (long s = 0; s < count; s++)
                for (int v = 0; v < PARTS; v++) sum += d[s * d_step + j * PARTS + v];
            for (int i = 0; i < ROWS<T> / PARTS; i++) db[j] += sum[i];
        }
    }
};

template <class T, int MODE> void run(const Problem& p, bool is_backward) {
    for (long lane = 0; lane < p.lanes; lane++) {
        const Lane<T, MODE> one{p, lane};
        is_backward ? one.backward() : one.forward();
    }
}

template <class T> void choose(const Problem& p, bool is_backward) {
    p.mode == RNN_TANH   ? run<T, RNN_TANH>(p, is_backward)
    : p.mode == RNN_RELU ? run<T, RNN_RELU>(p, is_backward)
    : p.mode == LSTM     ? run<T, LSTM>(p, is_backward)
                         : run<T, GRU>(p, is_backward);
}
}  // namespace

extern "C" void nnexp_recurrent(const Problem* p, int64_t is_backward) {
    p->is_double ? choose<double>(*p, is_backward) : choose<float>(*p, is_backward);
}
