/**
 * How fast peers may be, beside how many they may be (limits.ts): a rate for each kind of work that one makes us do.
 * Every number is far above what an honest peer of ours needs and far below what would hold up the event loop.
 */

/** How much of it a source may do at once, and from then on each second. */
export interface Rate {
  readonly burst: number
  readonly perSecond: number
}

const KIB = 1024
const MIB = 1024 * KIB

/** All strangers of one host: some dozens of daemons behind one address. A microsecond to a millisecond each, a few hundredths of a core together. */
const UNLISTED_RATES = {
  /** A request may bring stdin. */
  bytes: { burst: 32 * MIB, perSecond: 2 * MIB },
  frames: { burst: 16_000, perSecond: 2_000 },
  /** The muxer's own question for a sign of life: one every ten seconds. */
  pings: { burst: 256, perSecond: 16 },
  /** A tenth of a millisecond each: identify, gossip, a handshake, and eight at most that carry messages. */
  streams: { burst: 1_000, perSecond: 50 },
  resets: { burst: 500, perSecond: 50 },
  /** A signature each, before anything else is known of it. */
  messages: { burst: 2_000, perSecond: 200 },
  /** Two signatures and a key encapsulation each, in both halves. */
  handshakes: { burst: 32, perSecond: 4 },
  /** Noise and identify, some milliseconds each. */
  connections: { burst: 128, perSecond: 8 },
} as const satisfies Readonly<Record<string, Rate>>

/** What is counted of a peer. `messages` are those of gossip, `connections` those that it begins. */
export type Metered = keyof typeof UNLISTED_RATES
export const METERED = Object.keys(UNLISTED_RATES) as Metered[]

/** What one machine may do that contacts of level `unknown`, the ACL or the bootstrap list name: a bootstrap peer relays for many. */
const NAMED_RATES: Readonly<Record<Metered, Rate>> = {
  bytes: { burst: 64 * MIB, perSecond: 8 * MIB },
  frames: { burst: 32_000, perSecond: 4_000 },
  pings: { burst: 256, perSecond: 16 },
  streams: { burst: 2_000, perSecond: 100 },
  resets: { burst: 1_000, perSecond: 100 },
  messages: { burst: 4_000, perSecond: 400 },
  handshakes: { burst: 32, perSecond: 4 },
  /** Of a host where one of them may be, beside what any host has; shared with the strangers there. A twentieth of a core. */
  connections: { burst: 512, perSecond: 16 },
}

/** What one machine of a contact of level `known` or `trusted` may do: more than a run with as much output as the path carries. */
const ACCEPTED_RATES: Readonly<Record<Metered, Rate>> = {
  /** Ten times what Noise opens of one connection. */
  bytes: { burst: 16_384 * MIB, perSecond: 4_096 * MIB },
  frames: { burst: 500_000, perSecond: 100_000 },
  pings: { burst: 256, perSecond: 16 },
  /** Eight times the runs per second of one pair. */
  streams: { burst: 20_000, perSecond: 5_000 },
  resets: { burst: 20_000, perSecond: 5_000 },
  messages: { burst: 4_000, perSecond: 400 },
  handshakes: { burst: 64, perSecond: 16 },
  connections: NAMED_RATES.connections,
}

/** In this time each budget of a stranger is whole again; that of streams takes longest. */
export const LONGEST_REFILL_MS = (1_000 * UNLISTED_RATES.streams.burst) / UNLISTED_RATES.streams.perSecond

/** By what contacts, ACL and bootstrap list say of a machine. */
export type PeerClass = 'stranger' | 'named' | 'accepted'
export const RATES: Readonly<Record<PeerClass, Readonly<Record<Metered, Rate>>>> = {
  stranger: UNLISTED_RATES,
  named: NAMED_RATES,
  accepted: ACCEPTED_RATES,
}

/** So many a minute of each source, all of them at once if need be. */
export const perMinute = (count: number): Rate => ({ burst: count, perSecond: count / 60 })

/** Inbound connections whose machine is not proven yet; beyond this the host that has the most of them loses its oldest. */
export const MAX_UNPROVEN_CONNECTIONS = 256

/** Machines of one agent that are connected at once: a person's computers and some CI runners. Beyond this its oldest machine makes room. */
export const MAX_MACHINES_PER_AGENT = 16
/** Connections of all machines of one agent: `MAX_CONNECTIONS_PER_UNLISTED` for each. Beyond this its oldest connection makes room. */
export const MAX_CONNECTIONS_PER_AGENT = 64

/** What a daemon with `relay = true` carries for its contacts, and how a daemon uses the relays of others. docs/reach.md names each. */

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
export const MAX_UNLISTED_PER_RELAY = 8
/** How long a relayed connection is kept beside a direct one on which everything new begins, once nothing runs on it. */
export const RELAYED_IDLE_MS = 5_000
/** Of a machine that has direct addresses as well, relayed ones are dialled this much later: a machine that is near answers sooner. */
export const RELAYED_DIAL_AFTER_MS = 300
/** How often the direct way to a machine is tried while only a relay leads there, at first and at most. */
export const DIRECT_RETRY_MIN_MS = 5_000
export const DIRECT_RETRY_MAX_MS = 5 * 60_000
