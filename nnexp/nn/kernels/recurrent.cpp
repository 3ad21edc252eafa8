// Recurrent layers for many lanes, one after the other: the weights of a lane stay in L1, its states in L2.
//
// B rows, T positions, C channels, H units, G gates. Rows are processed in blocks of ROWS, and every array of a block
// has the rows as its last axis, so that any H fills whole vectors. Positions of a block are stored in the order in
// which they are read. Results do not depend on other lanes, their number or the alignment of memory.

#include "products.h"
#include "scratch.h"

namespace {

enum Mode { RNN_TANH, RNN_RELU, LSTM, GRU };
constexpr int gates(int mode) { return mode == LSTM ? 4 : mode == GRU ? 3 : 1; }
constexpr int blocks(int mode) { return mode == GRU ? 4 : gates(mode); }  // GRU's n gate has separate sums of x and h

// One unit at one position: its pre-activations, one per block, become its gates in place.
template <class T, int MODE> inline void activate(Vec<T>* at) {
    constexpr int P = PARTS;
    if constexpr (MODE == RNN_TANH) at[0] = tanh<T>(at[0]);
    if constexpr (MODE == RNN_RELU) at[0] = at[0] < 0 ? Vec<T>{} : at[0];
    if constexpr (MODE >= LSTM) at[0] = sigmoid<T>(at[0]), at[P] = sigmoid<T>(at[P]);
    if constexpr (MODE == LSTM) at[2 * P] = tanh<T>(at[2 * P]), at[3 * P] = sigmoid<T>(at[3 * P]);
    if constexpr (MODE == GRU) at[2 * P] = tanh<T>(at[2 * P] + at[0] * at[3 * P]);
}

// Update the states h and c by one position, except where `ok` is false (padding); `bent` is tanh(c).
template <class T, int MODE>
inline void advance(const Vec<T>* at, Mask<T> ok, Vec<T>& h, Vec<T>& c, Vec<T>& bent) {
    constexpr int P = PARTS;
    Vec<T> next;
    if constexpr (MODE < LSTM) next = at[0];
    if constexpr (MODE == LSTM) {
        c = ok ? at[P] * c + at[0] * at[2 * P] : c;
        bent = tanh<T>(c);
        next = at[3 * P] * bent;
    }
    if constexpr (MODE == GRU) next = (1 - at[P]) * at[2 * P] + at[P] * h;
    h = ok ? next : h;
}

// From the gradients of the states after a position compute those of the pre-activations, `d`, and those of the states
// before it, without the part that passes through the weights.
template <class T, int MODE>
inline void retreat(const Vec<T>* at, Mask<T> ok, Vec<T> h, Vec<T> c, Vec<T> bent, Vec<T>* d, Vec<T>& dh, Vec<T>& dc) {
    constexpr int P = PARTS;
    Vec<T> none = {}, skips = none;
    if constexpr (MODE == RNN_TANH) d[0] = ok ? dh * (1 - at[0] * at[0]) : none;
    if constexpr (MODE == RNN_RELU) d[0] = ok & ~(at[0] <= 0) ? dh : none;
    if constexpr (MODE == LSTM) {
        Vec<T> i = at[0], f = at[P], g = at[2 * P], o = at[3 * P], all = dc + dh * o * (1 - bent * bent);
        d[0] = ok ? all * g * (i * (1 - i)) : none;
        d[P] = ok ? all * c * (f * (1 - f)) : none;
        d[2 * P] = ok ? all * i * (1 - g * g) : none;
        d[3 * P] = ok ? dh * bent * (o * (1 - o)) : none;
        dc = ok ? all * f : dc;
    }
    if constexpr (MODE == GRU) {
        Vec<T> r = at[0], z = at[P], g = at[2 * P], dg = dh * (1 - z) * (1 - g * g);
        d[0] = ok ? dg * at[3 * P] * (r * (1 - r)) : none;
        d[P] = ok ? dh * (h - g) * (z * (1 - z)) : none;
        d[2 * P] = ok ? dg : none;
        d[3 * P] = ok ? dg * r : none;
        skips = dh * z;
    }
    dh = ok ? skips : dh;
}

extern "C" struct Problem {
    int64_t lanes, rows, positions, channels, units, mode, is_double, is_reverse, is_whole;
    int64_t gaps[4];                                 // numbers from lane to lane in w_ih, w_hh, b_ih, b_hh
    const int64_t* lengths;                          // (K, B) or null
    const void *x, *w_ih, *w_hh, *b_ih, *b_hh;       // (K, B, T, C), (K, GH, C), (K, GH, H), (K, GH) or null
    void *states, *kept;                             // (K, B, T, H) or the last (K, B, H); see Lane::kept
    const void* grad;                                // of the states
    void *dx, *dw_ih, *dw_hh, *db_ih, *db_hh;        // null, or zeros of the shapes of x to b_hh
};

template <class T, int MODE> struct Lane {
    static constexpr int G = gates(MODE), S = blocks(MODE);
    using Int = typename Number<T>::Int;
    const Problem& p;
    const long lane, B = p.rows, N = p.positions, C = p.channels, H = p.units;
    // From position to position: odd numbers of rows, lest all fall into the same few places of the caches.
    const long n = H * PARTS, gap = (H | 1) * PARTS, x_gap = ((C + 1) | 1) * PARTS, d_gap = (S * H | 1) * PARTS;
    const T *x = of(p.x, B * N * C), *w_ih = of(p.w_ih, p.gaps[0]), *w_hh = of(p.w_hh, p.gaps[1]);
    const T *b_ih = of(p.b_ih, p.gaps[2]), *b_hh = of(p.b_hh, p.gaps[3]);

    const T* of(const void* all, long size) const { return all ? (const T*)all + lane * size : nullptr; }
    T* of(void* all, long size) const { return all ? (T*)all + lane * size : nullptr; }
    static constexpr int of_h(int gate) { return MODE == GRU && gate == 2 ? 3 : gate; }  // block with the sums of h
    Int position(long s) const { return p.is_reverse ? N - 1 - s : s; }
    long in_block(long first) const { return B - first < ROWS<T> ? B - first : ROWS<T>; }
    Vec<T>* kept(long first, long s) const {  // saved for the backward pass: S numbers of each unit, for a block of rows at a position
        const long blocks = (B + ROWS<T> - 1) / ROWS<T>;
        return (Vec<T>*)p.kept + ((lane * blocks + first / ROWS<T>) * N + s) * S * n;
    }
    static Rows<T> rows(const Vec<T>* first, int step = 1) { return {(Vec<T>*)first, step * PARTS}; }
    static Rows<T> block(const Vec<T>* at, int b) { return rows(at + b * PARTS, S); }  // one number of each unit
    template <class F> void each(F f) const {
        for (long u = 0; u < H; u++)
            for (long v = 0; v < PARTS; v++) f(u * PARTS + v, u * S * PARTS + v, v);
    }
    void ends(Mask<T>* end, long first) const {  // where the padding of each row begins
        for (long i = 0; i < ROWS<T>; i++) {
            const long b = first + i, length = b >= B ? 0 : p.lengths ? p.lengths[lane * B + b] : N;
            end[i / (ROWS<T> / PARTS)][i % (ROWS<T> / PARTS)] = length < N ? length : N;
        }
    }

    void forward() const {
        Vec<T>*h = (Vec<T>*)scratch.get((2 * gap + x_gap + S * H) * BYTES), *c = h + gap, *z = c + gap, bent;
        T* bias = (T*)(z + x_gap);
        for (long j = 0; j < S * H; j++) bias[j] = 0;
        for (long j = 0; b_ih && j < G * H; j++) bias[j] += b_ih[j], bias[of_h(j / H) * H + j % H] += b_hh[j];
        for (long first = 0; first < B; first += ROWS<T>) {
            const long count = in_block(first);
            Mask<T> end[PARTS];
            ends(end, first);
            std::memset(h, 0, 2 * gap * BYTES);
            for (long s = 0; s < N; s++) {
                const Int t = position(s);
                Vec<T>* now = kept(first, s);
                gather<T>(z, x + (first * N + t) * C, N * C, C, count);
                sums(now, bias, z, h, s ? H : 0);  // h is zero at first
                each([&](long i, long at, long v) {
                    for (int g = 0; g < S; g++) __builtin_prefetch(now + at + S * n + g * PARTS, 1);
                    activate<T, MODE>(now + at);
                    advance<T, MODE>(now + at, end[v] > t, h[i], c[i], bent);
                });
                if (p.is_whole) scatter<T>(of(p.states, B * N * H) + (first * N + t) * H, h, N * H, H, count);
            }
            if (!p.is_whole) scatter<T>(of(p.states, B * H) + first * H, h, H, H, count);
        }
    }

    void sums(Vec<T>* now, const T* bias, const Vec<T>* z, const Vec<T>* h, long known) const {
        for (int g = 0; g < G; g++) {
            const Term<T> of_z{w_ih + g * H * C, C, 1, rows(z), C}, of_old{w_hh + g * H * H, H, 1, rows(h), known};
            const bool is_one = of_h(g) == g;
            product<T>(block(now, g), H, bias + g * H, of_z, is_one ? of_old : Term<T>{});
            if (!is_one) product<T>(block(now, of_h(g)), H, bias + of_h(g) * H, of_old);
        }
    }

    void backward() const {
        const long chunk = 1 + (1 << 18) / (d_gap * BYTES);  // positions whose gradients fit into the cache
        Vec<T>* h = (Vec<T>*)scratch.get(((3 * N + 4) * gap + (N + 1) * x_gap + chunk * d_gap + n) * BYTES);
        Vec<T> *c = h + (N + 1) * gap, *bent = c + (N + 1) * gap, *z = bent + N * gap, *d = z + N * x_gap;
        Vec<T> *dh = d + chunk * d_gap, *dc = dh + gap, *more = dc + gap;
        for (long first = 0; first < B; first += ROWS<T>) {
            const long count = in_block(first);
            Mask<T> end[PARTS];
            ends(end, first);
            replay(first, end, h, c, bent, z);
            std::memset(dh, 0, 2 * gap * BYTES);
            if (!p.is_whole) gather<T>(dh, of(p.grad, B * H) + first * H, H, H, count);
            for (long s = N - 1; s >= 0; s--) {
                const Int t = position(s);
                if (p.is_whole) {
                    gather<T>(more, of(p.grad, B * N * H) + (first * N + t) * H, N * H, H, count);
                    for (long i = 0; i < n; i++) dh[i] += more[i];
                }
                const Vec<T>* now = kept(first, s);
                Vec<T>* ds = d + s % chunk * d_gap;
                each([&](long i, long at, long v) {
                    const long j = s * gap + i;
                    retreat<T, MODE>(now + at, end[v] > t, h[j], c[j], bent[j], ds + at, dh[i], dc[i]);
                });
                for (int g = 0; s && g < G; g++)
                    product<T>(rows(dh), H, nullptr, {w_hh + g * H * H, 1, H, block(ds, of_h(g)), H});
                if (p.dx) {
                    std::memset(more, 0, C * PARTS * BYTES);
                    for (int g = 0; g < G; g++)
                        product<T>(rows(more), C, nullptr, {w_ih + g * H * C, 1, C, block(ds, g), H});
                    scatter<T>(of(p.dx, B * N * C) + (first * N + t) * C, more, N * C, C, count);
                }
                if (s % chunk == 0) weights(d, z + s * x_gap, h + s * gap, N - s < chunk ? N - s : chunk, more);
            }
        }
    }

    // Recompute the states before each position, and gather the inputs, followed by a one for the biases.
    void replay(long first, const Mask<T>* end, Vec<T>* h, Vec<T>* c, Vec<T>* bent, Vec<T>* z) const {
        std::memset(h, 0, n * BYTES), std::memset(c, 0, n * BYTES);
        for (long s = 0; s < N; s++, h += gap, c += gap, bent += gap, z += x_gap) {
            const Int t = position(s);
            const Vec<T>* now = kept(first, s);
            gather<T>(z, x + (first * N + t) * C, N * C, C, in_block(first));
            for (long v = 0; v < PARTS; v++) z[C * PARTS + v] = splat<T>(1);
            each([&](long i, long at, long v) {
                for (int g = 0; g < S; g++) __builtin_prefetch(now + at + 1 * S * n + g * PARTS);
                h[i + gap] = h[i], c[i + gap] = c[i];
                advance<T, MODE>(now + at, end[v] > t, h[i + gap], c[i + gap], bent[i]);
            });
        }
    }

    void weights(const Vec<T>* d, const Vec<T>* z, const Vec<T>* h, long positions, Vec<T>* turned) const {
        const bool is_wide = H % ROWS<T> == 0;
        if (is_wide) wide(d, h, positions, turned);
        for (int g = 0; g < G; g++) {
            const Rows<T> of_z = block(d, g), of_old = block(d, of_h(g)), ones = rows(z + C * PARTS);
            outer<T>(of(p.dw_ih, G * H * C) + g * H * C, H, C, of_z, d_gap, rows(z), x_gap, positions);
            if (!is_wide) outer<T>(of(p.dw_hh, G * H * H) + g * H * H, H, H, of_old, d_gap, rows(h), gap, positions);
            if (!b_ih) continue;
            T *db_ih = of(p.db_ih, G * H) + g * H, *db_hh = of(p.db_hh, G * H) + g * H;
            outer<T>(db_ih, H, 1, of_z, d_gap, ones, x_gap, positions);
            if (of_h(g) == g) std::memcpy(db_hh, db_ih, H * sizeof(T));
            else outer<T>(db_hh, H, 1, of_old, d_gap, ones, x_gap, positions);
        }
    }

    // Gradient of w_hh where its rows fill whole vectors, so that no sum runs within a vector.
    void wide(const Vec<T>* d, const Vec<T>* h, long positions, Vec<T>* turned) const {
        const long L = BYTES / sizeof(T), width = H / L;
        for (long s = 0; s < positions; s++) {
            scatter<T>((T*)turned, h + s * gap, H, H, ROWS<T>);
            for (int g = 0; g < G; g++) {
                Vec<T>* to = (Vec<T>*)(of(p.dw_hh, G * H * H) + g * H * H);
                const T* w = (const T*)(block(d, of_h(g))[0] + s * d_gap);
                for (long n = 0; n < width; n += PARTS)
                    product<T>({to + n, width}, H, nullptr, {w, S * ROWS<T>, 1, {turned + n, width}, ROWS<T>});
            }
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
