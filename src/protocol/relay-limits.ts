/** What a daemon with `relay = true` carries for its contacts, and how a daemon uses the relays of others. docs/reach.md names each. */

const MIB = 1024 * 1024

/** Machines that may hold a place at one relay: a few hundred bytes each, and a connection that they have anyway. */
export const MAX_RESERVATIONS = 512
/** How long a place is kept; who holds it renews it five minutes before its end. Its relayed connections end with it. */
export const RESERVATION_MS = 60 * 60 * 1000
/** Connections that one relay carries at once: two streams and at most two held-back windows each. */
export const MAX_CARRIED = 512
/** … of them those with one machine, or one agent, at either end: a fan-out to a fleet behind the same relay. Less than half of the streams of one connection. */
export const MAX_CARRIED_OF_MACHINE = 112
/** … and between the same two machines: two that crossed, and two that are left of before. The oldest makes room. */
export const MAX_CARRIED_OF_PAIR = 4
/** Bytes of one carried connection, both ways together: far more than a run keeps or sends. When they are used up it ends, and its runs go on over the next. */
export const MAX_CARRIED_BYTES = 64 * 1024 * MIB
/** How long one is carried: as long as a link lives. */
export const MAX_CARRIED_MS = 24 * 60 * 60 * 1000
/** What all carried connections of a relay bring it each second, and at once: half of what Noise opens on one core. Who sends more waits. */
export const CARRIED_BYTES_PER_SECOND = 64 * MIB
export const CARRIED_BURST = 64 * MIB
/** What waits in a relay for one direction of a carried connection before its sender gets no more window; the window itself, `MAX_STREAM_WINDOW`, may still come. */
export const MAX_CARRIED_BACKLOG = MIB
/** What waits in a relay of all that it carries: as much as 112 connections with one machine that reads slowly leave, and as much again. Beyond it the one of which most waits is ended, and its runs go on over the next. */
export const MAX_CARRIED_HELD = 256 * MIB
/** Within this a relay has asked the other end, and it has answered. Less than `ADDRESS_DIAL_MS` is of no use to who waits. */
export const HOP_MS = 5_000
/** Relays at which a daemon holds a place: one may fail. */
export const MAX_OWN_RELAYS = 2
/** Addresses of each that it tells others: of the four at most that lead to it, the first two. */
export const ADDRESSES_PER_RELAY = 2
/** Strangers that one relay may bring us at once: it carries for its own contacts, of whom few are strangers to us. */
export const MAX_STRANGERS_PER_RELAY = 8
/** How long a relayed connection is kept beside a direct one on which everything new begins, once nothing runs on it. */
export const RELAYED_IDLE_MS = 5_000
/** Of a machine that has direct addresses as well, relayed ones are dialled this much later: a machine that is near answers sooner. */
export const RELAYED_DIAL_AFTER_MS = 300
/** How often the direct way to a machine is tried while only a relay leads there, at first and at most. */
export const DIRECT_RETRY_MIN_MS = 5_000
export const DIRECT_RETRY_MAX_MS = 5 * 60_000
