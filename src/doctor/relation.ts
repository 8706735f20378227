import { AppError, errorText, isAppError, nextOf } from '../base/errors.ts'
import { counted, shellWord, shellWords } from '../base/format.ts'
import type { LocalApi } from '../clients/daemon.ts'
import { askRules } from '../clients/rules.ts'
import { CAUSE_TEXT, evaluateTrust, trustRemedy } from '../clients/trust.ts'
import type { ContactRecord, ContactsAnswer, PeersAnswer, Pinged } from '../protocol/api-answers.ts'
import { findMetacharacter, matchesToken, parseForeignArgv } from '../protocol/argv-template.ts'
import { isHexId } from '../protocol/ids.ts'
import { MAX_CLOCK_SKEW_MS } from '../protocol/limits/wire.ts'
import type { ExecRule } from '../protocol/wire/exec.ts'
import { findContact } from '../trust/contact.ts'
import { type Finding, fail, ok, warn } from './findings.ts'

export const routeText = ({ relay }: Pick<NonNullable<Pinged['path']>, 'relay'>): string =>
  relay === null ? 'direct' : `relayed by machine ${relay.slice(0, 12)}`

interface RuleQuestion {
  /** An agent as the user typed it. */
  readonly agent: string
  readonly agentId: string
  readonly argv: readonly string[] | null
}

/** Remedies on the other machine. */
interface Remedies {
  readonly trust: string
  readonly explain: string
}

const HOW_TO_LIST = 'discoverable = true in the ACL entry, then restart x0xd'

const fits = (rule: ExecRule, argv: readonly string[]): boolean => {
  const tokens = parseForeignArgv(rule.argv)
  return typeof tokens !== 'string' && tokens.length === argv.length && tokens.every((token, at) => matchesToken(token, argv[at]!))
}

const commandFinding = (argv: readonly string[], rules: readonly ExecRule[], { explain }: Remedies): Finding => {
  const meta = findMetacharacter(argv)
  if (meta !== null) {
    const text = `argument ${meta.token + 1} contains ${JSON.stringify(meta.character)}: such requests are denied (shell_metachar_in_argv)`
    return fail(
      'command',
      text,
      'x0x does not use a shell: give each argument as a separate word, or put the command line into a script on the target and allow it',
    )
  }
  const rule = rules.find((one) => fits(one, argv))
  if (rule !== undefined) {
    const stdin = rule.max_stdin_bytes === 0 ? 'no stdin' : `stdin up to ${rule.max_stdin_bytes} bytes`
    return ok('command', `${shellWords(argv)} is allowed: at most ${rule.timeout_ms / 1000} s, ${stdin}`)
  }
  const unlisted = `${shellWords(argv)} is not among the commands that it lists. It may be allowed`
  return { ...(rules.length === 0 ? ok('command', unlisted) : warn('command', unlisted, explain)), remedy: explain }
}

/** The commands that the agent allows this one, as far as it tells. */
export const ruleFindings = async (api: LocalApi, { agent, agentId, argv }: RuleQuestion, remedies: Remedies): Promise<Finding[]> => {
  try {
    const { denial_reason, rules, left_out } = await askRules(api, agentId)
    if (denial_reason === 'trust_rejected' || denial_reason === 'unverified_sender')
      return [fail('remote trust', `it does not trust this agent on this machine (${denial_reason})`, remedies.trust)]
    if (denial_reason !== null) return [fail('remote rules', `it does not answer: ${denial_reason}`, 'on its machine: x0xd --doctor')]
    const trusted = ok('remote trust', 'it trusts this agent on this machine')
    const count = rules.length + left_out
    const told =
      count === 0
        ? {
            ...ok('remote rules', `${agent} does not list the commands that you may run. This is not an error`),
            remedy: `Try, on ${agent}: ${HOW_TO_LIST}`,
          }
        : ok('remote rules', `it lists ${counted(count, 'command')}: x0x acl mine ${shellWord(agent)}`)
    return [trusted, told, ...(argv === null ? [] : [commandFinding(argv, rules, remedies)])]
  } catch (error) {
    return [warn('remote rules', errorText(error), 'on its machine: x0xd --doctor, x0x audit tail')]
  }
}

/** Warns above this clock difference. Above MAX_CLOCK_SKEW_MS, cards and presences are refused. */
const CLOCK_DOUBT_MS = 30_000

export interface OwnAgent {
  readonly agent_id: string
  readonly machine_id: string
  readonly version: string
  readonly revoked: boolean
}

/** The agent to check, as the user typed it, and a command. */
export interface RelationQuestion {
  readonly agent: string
  /** Null for no command. */
  readonly argv: readonly string[] | null
}

/** The command on the target that trusts this agent. */
const remoteTrustRemedy = ({ machine_id }: OwnAgent): string =>
  `on its machine: x0x contacts import LINK --as NAME (LINK: x0x card on this machine), x0x contacts trust NAME trusted, x0x contacts pin NAME ${machine_id}`

/** The command on the target that shows its decision and the reason. */
const remoteDecisionRemedy = ({ agent_id, machine_id }: OwnAgent): string => `on its machine: x0x trust evaluate ${agent_id} ${machine_id}`

const NEW_CARD = 'on its machine: x0x card; then on this machine: x0x contacts import LINK'

const contactOf = async (api: LocalApi, agent: string): Promise<ContactRecord | null> => {
  const { contacts } = await api.json<ContactsAnswer>({ method: 'GET', path: '/contacts' })
  try {
    return findContact(contacts, agent)
  } catch (error) {
    if (isAppError(error, 'unknown_agent')) return null
    throw error
  }
}

const contactFinding = (agent: string, contact: ContactRecord | null): Finding => {
  if (contact === null) return warn('contact', `${agent} is not a contact: it may not run commands on this machine`, NEW_CARD)
  const { name, agent_id, trust, machines, revoked } = contact
  if (revoked) return fail('contact', `${name} has revoked its key for ever: no agent accepts it`, 'import the card of its new agent')
  const pins = machines.length === 0 ? 'not pinned' : `pinned to ${machines.join(', ')}`
  return ok('contact', `${name}: agent ${agent_id}, ${trust}, ${pins}`)
}

const addressFinding = async (api: LocalApi, agent: string, contact: ContactRecord | null): Promise<Finding> => {
  const { peers } = await api.json<PeersAnswer>({ method: 'GET', path: '/peers' })
  const seen = peers.filter(({ agent_id }) => agent_id !== null && (agent_id === contact?.agent_id || agent_id.startsWith(agent)))
  const addresses = [...new Set([...(contact?.addresses ?? []), ...seen.flatMap((peer) => peer.addresses)])]
  if (addresses.length === 0) return warn('addresses', 'none is known: you can reach it only while it connects to this machine', NEW_CARD)
  return ok('addresses', `${addresses.join(', ')}${seen.length > 0 ? '' : '; the mesh does not announce it now'}`)
}

const REACH =
  'on its machine: x0xd --doctor, and open its port in the firewall. If its addresses are old: x0x card on its machine, then x0x contacts import LINK'

const linkFailure = (error: unknown, own: OwnAgent): Finding => {
  if (isAppError(error, 'peer_unreachable') || isAppError(error, 'timeout')) return fail('link', errorText(error), REACH)
  if (isAppError(error, 'peer_rejected')) return fail('link', errorText(error), remoteDecisionRemedy(own))
  if (isAppError(error, 'upgrade')) return fail('link', errorText(error), nextOf(error).next ?? '')
  return fail('link', errorText(error), isAppError(error, 'unknown_agent') ? NEW_CARD : 'x0x diagnostics mesh, x0x diagnostics dm')
}

const clockFinding = ({ clock_ahead_ms: ahead }: Pinged): Finding => {
  const text = `its clock is ${(Math.abs(ahead) / 1000).toFixed(1)} s ${ahead < 0 ? 'slower' : 'faster'} than that of this machine`
  if (Math.abs(ahead) < CLOCK_DOUBT_MS) return ok('clock', text)
  const limit = `cards and presences from more than ${MAX_CLOCK_SKEW_MS / 60_000} minutes ahead are refused`
  return warn('clock', `${text}; ${limit}, and logs cannot be compared`, 'on the machine that is wrong: timedatectl set-ntp true')
}

const versionFinding = ({ version, own_version }: Pinged): Finding =>
  version === own_version
    ? ok('versions', `x0x ${version} on both machines`)
    : warn('versions', `x0x ${version} on its machine, ${own_version} on this one: newer features do not work`, 'update the older one')

/** The results of a ping over the sealed link. */
const pingFindings = async (api: LocalApi, agent: string, own: OwnAgent): Promise<Finding[]> => {
  let pinged: Pinged
  try {
    pinged = await api.json<Pinged>({ method: 'POST', path: '/agents/ping', body: { agent } })
  } catch (error) {
    if (isAppError(error, 'peer_rejected')) return [fail('ping', 'it does not accept this agent on this machine', remoteTrustRemedy(own))]
    return [fail('ping', errorText(error), REACH)]
  }
  const { path, rtt_ms } = pinged
  const way = path === null ? 'this agent' : `${path.address}, ${routeText(path)}${path.inbound ? '; it connected to this machine' : ''}`
  return [ok('ping', `${rtt_ms} ms by ${way}`), versionFinding(pinged), clockFinding(pinged)]
}

/** What the agent may request from this one. */
const trustFindings = async (api: LocalApi, agent: string, machine: string): Promise<Finding[]> => {
  const evaluation = await evaluateTrust(api, agent, machine)
  const { decision, cause, contact, in_acl } = evaluation
  const [text, remedy] = [`${decision}: ${CAUSE_TEXT[cause]}`, trustRemedy(evaluation)]
  if (decision !== 'accept') {
    const fix = remedy ?? 'x0x contacts list'
    return [
      decision.startsWith('reject_')
        ? fail('local trust', text, fix)
        : warn('local trust', `${text}; its requests to this machine are denied`, fix),
    ]
  }
  const pin = remedy === null ? ok('local trust', text) : warn('local trust', `${text}, so a stolen key works on any machine`, remedy)
  const whose = contact?.name ?? 'it'
  const acl = in_acl
    ? `has an entry for ${whose} on that machine`
    : `has no entry for ${whose} on that machine, so ${whose} may not run commands`
  return [pin, ok('local ACL', `the ACL of this machine ${acl}`)]
}

const ownOf = async (api: LocalApi): Promise<OwnAgent> => api.json<OwnAgent>({ method: 'GET', path: '/agent' })

/** Checks both sides of a relation as far as this machine can see them. Throws the daemon's error for an invalid question. */
export const relationFindings = async (api: LocalApi, { agent, argv }: RelationQuestion): Promise<Finding[]> => {
  const own = await ownOf(api)
  const ownFinding = own.revoked
    ? fail('this agent', 'this agent has been revoked for ever: no other agent accepts it', 'start x0xd with a new data directory')
    : ok('this agent', `agent ${own.agent_id}, machine ${own.machine_id}, x0x ${own.version}`)
  const contact = await contactOf(api, agent)
  const findings = [ownFinding, contactFinding(agent, contact), await addressFinding(api, agent, contact)]
  let link: { readonly agent_id: string; readonly machine_id: string }
  try {
    link = await api.json({ method: 'POST', path: '/agents/connect', body: { agent } })
  } catch (error) {
    if (isAppError(error, 'unknown_agent') && !isHexId(agent)) throw error
    if (error instanceof AppError && ['daemon_unreachable', 'ambiguous_agent', 'unauthorized'].includes(error.code)) throw error
    const [pinned] = contact?.machines ?? []
    const trust = contact === null || pinned === undefined ? [] : await trustFindings(api, contact.agent_id, pinned)
    return [...findings, linkFailure(error, own), ...trust]
  }
  findings.push(ok('link', `agent and machine are verified: machine ${link.machine_id}`))
  findings.push(...(await trustFindings(api, link.agent_id, link.machine_id)), ...(await pingFindings(api, link.agent_id, own)))
  const remedies = { trust: remoteTrustRemedy(own), explain: `Try, on ${agent}: x0x acl explain --last` }
  return [...findings, ...(await ruleFindings(api, { agent, agentId: link.agent_id, argv }, remedies))]
}
