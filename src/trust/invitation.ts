import { AppError, attempt } from '../base/errors.ts'
import { addressProblem, dialable } from '../identity/address.ts'
import { equalBytes, hmac, randomBytes, sha256 } from '../identity/hash.ts'
import { peerIdOf } from '../identity/machine-key.ts'
import { asCopied } from '../protocol/text.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import {
  INVITATION_MS,
  INVITATION_NONCE_BYTES,
  INVITATION_PREFIX,
  MAX_INVITED_ADDRESSES,
  REPLY_PREFIX,
  invitation,
  invitationReply,
} from '../protocol/wire/invitation.ts'
import type { Message } from '../protocol/wire/schema.ts'

/** One of two agents that exchange an invitation. */
export interface InvitedParty {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly name: string
  /** Each ends in `/p2p/<the machine's peer id>`. */
  readonly addresses: readonly string[]
}

/** A line for copying, and the bytes that it encodes. */
export interface CopiedLine {
  readonly line: string
  readonly encoded: Uint8Array
}

export interface ReadLine {
  readonly party: InvitedParty
  readonly encoded: Uint8Array
}

/** Checksum at the end of a line, against copying mistakes and not against attacks. */
const SUM_BYTES = 4
/** Above the length of any line with the characters that wrapping adds. */
export const MAX_LINE = 4_096

const lineOf = (prefix: string, encoded: Uint8Array): CopiedLine => ({
  line: prefix + Buffer.concat([encoded, sha256(encoded).subarray(0, SUM_BYTES)]).toString('base64url'),
  encoded,
})

const bad = (reason: string): AppError => new AppError('bad_request', reason)

/** A part of a line is missing or was changed. */
export class TruncatedInvitation extends AppError {
  constructor(next = '') {
    super('bad_request', 'the line is damaged or incomplete: copy the whole line', { data: { next } })
  }
}

/** A shell would split an unquoted, wrapped invitation into several commands. */
const QUOTED = "Try: x0x join 'LINE'   (LINE: all lines of the invitation, within the quotes)"

/** True if the text begins like a reply to an invitation. Following lines may be its rest. */
export const isReplyPart = (text: string): boolean => asCopied(text).startsWith(REPLY_PREFIX)

const bytesOf = (prefix: string, line: string, what: string, next = ''): Uint8Array => {
  if (line.length > MAX_LINE) throw new TruncatedInvitation(next)
  const text = asCopied(line)
  if (!text.startsWith(prefix)) throw bad(`this is not ${what}: it does not begin with ${prefix}`)
  const all = new Uint8Array(Buffer.from(text.slice(prefix.length), 'base64url'))
  const encoded = all.subarray(0, -SUM_BYTES)
  const isWhole = all.length > SUM_BYTES && equalBytes(sha256(encoded).subarray(0, SUM_BYTES), all.subarray(-SUM_BYTES))
  if (!isWhole || prefix + Buffer.from(all).toString('base64url') !== text) throw new TruncatedInvitation(next)
  return encoded
}

const sideOf = ({ agent_id, machine_id, name, addresses }: InvitedParty) => {
  const suffix = `/p2p/${peerIdOf(machine_id)}`
  const own = addresses.filter((address) => address.endsWith(suffix)).map((address) => address.slice(0, -suffix.length))
  const nonce = randomBytes(INVITATION_NONCE_BYTES)
  return { version: 1 as const, agent_id, machine_id, name, addresses: own.slice(0, MAX_INVITED_ADDRESSES), nonce }
}

const decoded = <T extends { agent_id: AgentId; machine_id: MachineId; name: string; addresses: string[] }>(
  message: Message<T>,
  encoded: Uint8Array,
): { readonly value: T; readonly party: InvitedParty } => {
  const value = attempt(() => message.decode(encoded))
  if (value === null) throw bad('the line is from another version of x0x, or not from x0x')
  const { agent_id, machine_id, name } = value
  const peerId = peerIdOf(machine_id)
  const addresses = value.addresses.map((address) => `${address}/p2p/${peerId}`)
  for (const address of addresses) {
    const problem = addressProblem(address, peerId)
    if (problem !== null) throw bad(`the address ${JSON.stringify(address)} ${problem}`)
  }
  return { value, party: { agent_id, machine_id, name, addresses: dialable(addresses, bad) } }
}

/** The line that the inviting side gives the other. */
export const makeInvitation = (own: InvitedParty, nowMs: number): CopiedLine =>
  lineOf(INVITATION_PREFIX, invitation.encode({ ...sideOf(own), expires_at_ms: nowMs + INVITATION_MS }))

/** Throws `bad_request` for a line that is invalid, changed or expired. */
export const readInvitation = (line: string, nowMs: number): ReadLine => {
  const encoded = bytesOf(INVITATION_PREFIX, line, 'an invitation', QUOTED)
  const { value, party } = decoded(invitation, encoded)
  assertFresh(value.expires_at_ms, nowMs)
  return { party, encoded }
}

export const assertFresh = (expiresAtMs: number, nowMs: number): void => {
  if (nowMs >= expiresAtMs) {
    const [then, now] = [expiresAtMs, nowMs].map((ms) => new Date(ms).toISOString())
    throw bad(`the invitation expired at ${then}, and the clock of this machine says ${now}: run x0x invite again, or set the clock`)
  }
}

/** The line with which the invited side replies. */
export const makeReply = (own: InvitedParty, to: Uint8Array): CopiedLine =>
  lineOf(REPLY_PREFIX, invitationReply.encode({ ...sideOf(own), invitation_sha256: sha256(to) }))

/** Throws `bad_request` for a line that is invalid, changed, expired, or the reply to another invitation. */
export const readReply = (line: string, to: Uint8Array, nowMs: number): ReadLine => {
  const encoded = bytesOf(REPLY_PREFIX, line, 'the reply to an invitation')
  const { value, party } = decoded(invitationReply, encoded)
  if (!equalBytes(value.invitation_sha256, sha256(to)))
    throw bad('this answers another invitation: each is good for one reply; copy the line that join prints for this one')
  assertFresh(invitation.decode(to).expires_at_ms, nowMs)
  return { party, encoded }
}

/** Crockford's base32, without letters that sound or look like digits. */
const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz'
const SLIPS: Readonly<Record<string, string>> = { o: '0', i: '1', l: '1' }

/** Characters of a code's key and of its MAC. The key is chosen after both lines are fixed. */
const KEY_CHARACTERS = 8
const PROOF_CHARACTERS = 4

/** The first bits of the bytes, five for each character. */
const spoken = (bytes: Uint8Array, characters: number): string => {
  let bits = 0n
  for (const byte of bytes.subarray(0, 8)) bits = (bits << 8n) | BigInt(byte)
  return Array.from({ length: characters }, (_, at) => ALPHABET[Number((bits >> BigInt(59 - 5 * at)) & 31n)]).join('')
}

const heard = (code: string): string => [...code.toLowerCase().replaceAll(/[\s-]/g, '')].map((one) => SLIPS[one] ?? one).join('')

/** Why a text cannot be a code. Such a typing mistake does not count as an attempt. */
export const codeProblem = (text: string, what: 'code' | 'answer'): string | null => {
  const expected = what === 'code' ? KEY_CHARACTERS + PROOF_CHARACTERS : PROOF_CHARACTERS
  const got = heard(text).length
  return got === expected ? null : `the code has ${expected} characters, and you typed ${got}`
}

const sameText = (one: string, other: string): boolean => equalBytes(Buffer.from(one), Buffer.from(other))

/**
 * Codes that two people read aloud to verify that both have the same two lines (MANA I of Gehrmann, Mitchell and Nyberg). When both lines
 * are fixed, the inviting side chooses a random key and reads it with a MAC under it. The invited side compares, and only then replies with
 * its own MAC. An attacker who changed a line earlier could not know the key.
 */
export class SpokenCodes {
  readonly #transcript: Uint8Array

  constructor({ invited, replied }: { readonly invited: Uint8Array; readonly replied: Uint8Array }) {
    this.#transcript = sha256(sha256(invited), sha256(replied))
  }

  /** A new code for the inviting side to read aloud, in the form `xxxx-xxxx-xxxx`. */
  code(): string {
    const key = spoken(randomBytes(8), KEY_CHARACTERS)
    return (key + this.#proof(key, 'code')).replaceAll(/(.{4})(?=.)/g, '$1-')
  }

  /** The code that the invited side reads back, or null if the given code belongs to other lines. */
  answerTo(code: string): string | null {
    const text = heard(code)
    const key = text.slice(0, KEY_CHARACTERS)
    return sameText(text, key + this.#proof(key, 'code')) ? this.#proof(key, 'answer') : null
  }

  isAnswer(answer: string, code: string): boolean {
    return sameText(heard(answer), this.#proof(heard(code).slice(0, KEY_CHARACTERS), 'answer'))
  }

  #proof(key: string, what: 'code' | 'answer'): string {
    return spoken(hmac(Buffer.from(key), Buffer.from(`x0x-invitation-${what}-v1\0`), this.#transcript), PROOF_CHARACTERS)
  }
}
