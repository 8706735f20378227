import { AppError, attempt, errorText, isAppError } from '../base/errors.ts'
import { isVisible } from '../base/visible-text.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { MAX_CARD_BYTES, MAX_CLOCK_SKEW_MS } from '../protocol/limits/wire.ts'
import { CARD_LINK_PREFIX, type CardBody, type SignedCard, cardBody, signedCard } from '../protocol/wire/card.ts'
import { addressProblem, dialable } from './address.ts'
import { agentIdOf, type AgentSigner, verifyAgent } from './signing.ts'
import { peerIdOf } from './machine-key.ts'

/** A card with valid signature, times and addresses. It does not imply trust in the agent. */
export interface VerifiedCard {
  readonly agentId: AgentId
  readonly machineId: MachineId
  /** Name that the agent gives itself. */
  readonly name: string
  /** Each ends in `/p2p/<the machine's peer id>`. */
  readonly addresses: readonly string[]
  /** Epoch milliseconds. */
  readonly issuedAt: number
  readonly expiresAt: number
  readonly publicKey: Uint8Array
}

/** A link has four characters for three bytes, with the CBOR around the parts. */
const MAX_LINK_CHARS = CARD_LINK_PREFIX.length + Math.ceil((MAX_CARD_BYTES * 4) / 3)

const badCard = (reason: string, cause?: unknown): AppError =>
  new AppError('bad_card', `invalid card: ${reason}`, { cause, data: { next: 'Try, on the other machine: x0x card' } })

/** Turns a decoder's `malformed` into `bad_card`, which the user of a card understands. */
const asBadCard = <T>(decode: () => T): T => {
  try {
    return decode()
  } catch (error) {
    throw isAppError(error, 'malformed') ? badCard(errorText(error), error) : error
  }
}

const checkBody = (body: CardBody): void => {
  if (!isVisible(body.name)) throw badCard('its name has characters that do not print')
  if (body.expires_at_ms <= body.issued_at_ms) throw badCard('it expires before it was issued')
  const peerId = peerIdOf(body.machine_id)
  for (const address of body.addresses) {
    const problem = addressProblem(address, peerId)
    if (problem !== null) throw badCard(`the address ${JSON.stringify(address)} ${problem}`)
  }
}

/** Signs a card. With `ANNOUNCE_DOMAIN` it is the card that daemons exchange. Throws `bad_card` for one that no verifier would accept. */
export const signCard = async (signer: AgentSigner, body: CardBody, domain: string): Promise<SignedCard> => {
  const encoded = cardBody.encode(body)
  checkBody(asBadCard(() => cardBody.decode(encoded)))
  return { body: encoded, signature: await signer.sign(domain, encoded) }
}

/** `x0x://agent/<base64url of the signed card>`. */
export const encodeCardLink = (card: SignedCard): string => CARD_LINK_PREFIX + Buffer.from(signedCard.encode(card)).toString('base64url')

/** The signed card of a link, not yet verified. Throws `bad_card`. */
export const decodeCardLink = (link: string): SignedCard => {
  if (!link.startsWith(CARD_LINK_PREFIX)) throw badCard(`it does not begin with ${CARD_LINK_PREFIX}`)
  if (link.length > MAX_LINK_CHARS) throw badCard(`it is longer than ${MAX_LINK_CHARS} characters`)
  const text = link.slice(CARD_LINK_PREFIX.length)
  const bytes = Buffer.from(text, 'base64url')
  // Node skips invalid characters, so the text is compared. A link then has one spelling only.
  const card = bytes.toString('base64url') === text ? attempt(() => signedCard.decode(bytes)) : null
  if (card === null) throw badCard('the text is damaged or incomplete')
  return card
}

/** The card with the addresses that can be dialled. Throws `bad_card` if it has addresses, but all are unusable. */
export const dialableCard = (card: VerifiedCard): VerifiedCard => ({ ...card, addresses: dialable(card.addresses, badCard) })

/** Verifies a card for a domain at a time in epoch milliseconds, with 5 min of tolerance for the issuer's clock. Throws `bad_card`. */
export const verifyCard = (card: SignedCard, domain: string, nowMs: number): VerifiedCard => {
  const body = asBadCard(() => cardBody.decode(card.body))
  checkBody(body)
  if (nowMs >= body.expires_at_ms) throw badCard(`it expired at ${new Date(body.expires_at_ms).toISOString()}; ask for a new one`)
  if (body.issued_at_ms > nowMs + MAX_CLOCK_SKEW_MS) throw badCard('it was issued in the future; compare the clocks of both machines')
  if (!verifyAgent(body.agent_public_key, domain, card.body, card.signature))
    throw badCard('its signature is wrong: it was altered, or is not a card')
  return {
    agentId: agentIdOf(body.agent_public_key),
    machineId: body.machine_id,
    name: body.name,
    addresses: [...body.addresses],
    issuedAt: body.issued_at_ms,
    expiresAt: body.expires_at_ms,
    // A copy, because the decoded bytes are a view of the whole message.
    publicKey: new Uint8Array(body.agent_public_key),
  }
}
