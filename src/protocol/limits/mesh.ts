/**
 * Rate limits of peers, one for each kind of work that a peer causes. Each number is far above the needs of an honest peer and far below
 * what would block the event loop. Limits of number and size are in wire.ts.
 */

/** A rate limit with an initial burst and a rate per second. */
export interface Rate {
  readonly burst: number
  readonly perSecond: number
}

const KIB = 1024
const MIB = 1024 * KIB

/**
 * Rates of all unlisted peers of one host together, which may be some dozens of daemons behind one address. Each unit takes a microsecond
 * to a millisecond, a few hundredths of a core together.
 */
const UNLISTED_RATES = {
  /** A request may contain stdin. */
  bytes: { burst: 32 * MIB, perSecond: 2 * MIB },
  frames: { burst: 16_000, perSecond: 2_000 },
  /** Keep-alive pings of the muxer, one every ten seconds. */
  pings: { burst: 256, perSecond: 16 },
  /** Each takes a tenth of a millisecond. A peer opens them for identify, gossip, a handshake, and at most eight with messages. */
  streams: { burst: 1_000, perSecond: 50 },
  resets: { burst: 500, perSecond: 50 },
  /** Each needs a signature check before anything else. */
  messages: { burst: 2_000, perSecond: 200 },
  /** Two signatures and a key encapsulation each, in both processes. */
  handshakes: { burst: 32, perSecond: 4 },
  /** Noise and identify, some milliseconds each. */
  connections: { burst: 128, perSecond: 8 },
} as const satisfies Readonly<Record<string, Rate>>

/** Metered work of a peer. `messages` are gossip messages. `connections` are those that the peer opens. */
export type Metered = keyof typeof UNLISTED_RATES
export const METERED = Object.keys(UNLISTED_RATES) as Metered[]

/** Rates of a named machine, which is a contact of level `unknown` or in the ACL or bootstrap list. A bootstrap peer relays for many. */
const NAMED_RATES: Readonly<Record<Metered, Rate>> = {
  bytes: { burst: 64 * MIB, perSecond: 8 * MIB },
  frames: { burst: 32_000, perSecond: 4_000 },
  pings: { burst: 256, perSecond: 16 },
  streams: { burst: 2_000, perSecond: 100 },
  resets: { burst: 1_000, perSecond: 100 },
  messages: { burst: 4_000, perSecond: 400 },
  handshakes: { burst: 32, perSecond: 4 },
  /** Additional connections of a host where a named peer may be, shared with its unlisted peers. They take a twentieth of a core. */
  connections: { burst: 512, perSecond: 16 },
}

/** Rates of one machine of a contact of level `known` or `trusted`. A run with as much output as the path carries needs less. */
const ACCEPTED_RATES: Readonly<Record<Metered, Rate>> = {
  /** Ten times what Noise decrypts on one connection. */
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

/** Time in which each budget of an unlisted peer is full again. Streams take longest. */
export const LONGEST_REFILL_MS = (1_000 * UNLISTED_RATES.streams.burst) / UNLISTED_RATES.streams.perSecond

/** Class of a machine by contacts, ACL and bootstrap list. */
export type PeerClass = 'unlisted' | 'named' | 'accepted'
export const RATES: Readonly<Record<PeerClass, Readonly<Record<Metered, Rate>>>> = {
  unlisted: UNLISTED_RATES,
  named: NAMED_RATES,
  accepted: ACCEPTED_RATES,
}

/** This many a minute for each source, with all of them as a burst. */
export const perMinute = (count: number): Rate => ({ burst: count, perSecond: count / 60 })

/** Inbound connections that are not authenticated yet. If there are more, the host with the most of them loses its oldest. */
export const MAX_UNPROVEN_CONNECTIONS = 256

/** Connected machines of one agent, such as a person's computers and some CI runners. The oldest makes space for a further one. */
export const MAX_MACHINES_PER_AGENT = 16
/** Connections of all machines of one agent, `MAX_CONNECTIONS_PER_UNLISTED` for each. If there are more, the oldest is closed. */
export const MAX_CONNECTIONS_PER_AGENT = 64

/** Limits of a daemon with `relay = true` and of its clients. docs/nat.md names each. */

/** Machines with a reservation at one relay. Each costs a few hundred bytes, and a connection that it has anyway. */
export const MAX_RESERVATIONS = 512
/** Duration of a reservation. Its owner renews it five minutes before the end. Its relayed connections end with it. */
export const RESERVATION_MS = 60 * 60 * 1000
/** Connections that one relay carries at once. Each takes two streams and at most two buffered windows. */
export const MAX_CARRIED = 512
/** … of one machine or agent at either end. A fan-out to a fleet fits, and the connection keeps streams for other uses. */
export const MAX_CARRIED_OF_MACHINE = 112
/** … and between the same two machines. Two may have crossed, and two may be left over. The oldest is closed. */
export const MAX_CARRIED_OF_PAIR = 4
/** Bytes of one relayed connection in both directions, far more than a run stores or sends. Its runs then resume on the next. */
export const MAX_CARRIED_BYTES = 64 * 1024 * MIB
/** Duration of a relayed connection, which equals the lifetime of a link. */
export const MAX_CARRIED_MS = 24 * 60 * 60 * 1000
/** Rate and burst of all relayed connections in bytes per second. Noise decrypts twice as much on one core. Faster senders wait. */
export const CARRIED_BYTES_PER_SECOND = 64 * MIB
export const CARRIED_BURST = 64 * MIB
/** Bytes buffered for one direction of a relayed connection before its sender gets no more window. `MAX_STREAM_WINDOW` may still arrive. */
export const MAX_CARRIED_BACKLOG = MIB
/**
 * Bytes buffered by a relay in all, or twice what 112 connections with one slow machine leave. If there are more, the connection with the
 * most is closed, and its runs resume on the next.
 */
export const MAX_CARRIED_HELD = 256 * MIB
/** Time for a relay to connect to the other end. Must be at least `ADDRESS_DIAL_MS` to be useful to the dialler. */
export const HOP_MS = 5_000
/** Relays at which a daemon holds a reservation, so that one may fail. */
export const MAX_OWN_RELAYS = 2
/** Addresses of each relay that it publishes, the first two of at most four. */
export const ADDRESSES_PER_RELAY = 2
/** Unlisted peers that one relay may connect to this daemon. A relay carries for its own contacts, and few of them are unlisted here. */
export const MAX_UNLISTED_PER_RELAY = 8
/** How long an idle relayed connection is kept after a direct one exists. All new streams start on the direct one. */
export const RELAYED_IDLE_MS = 5_000
/** Delay before relayed addresses are dialled if direct ones exist, because a near machine answers sooner. */
export const RELAYED_DIAL_AFTER_MS = 300
/** First and longest interval between attempts to connect directly to a machine that only a relay reaches. */
export const DIRECT_RETRY_MIN_MS = 5_000
export const DIRECT_RETRY_MAX_MS = 5 * 60_000
