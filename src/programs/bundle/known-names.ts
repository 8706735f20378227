import { readFile } from 'node:fs/promises'
import { hostname, userInfo } from 'node:os'
import { ERROR_TABLE, attempt } from '../../base/errors.ts'
import { readPasswd } from '../../base/file-permissions.ts'
import { LOG_LEVELS } from '../../base/log-level.ts'
import { VERSION } from '../../base/runtime.ts'
import { type DaemonConfig, SETTING_KEYS } from '../../config/config.ts'
import { OPERATIONS } from '../../executor-api/messages.ts'
import { JOURNAL_EVENTS } from '../../journal/events.ts'
import type { Acl } from '../../policy/mesh/acl.ts'
import {
  CONTAINMENTS,
  CONTAINMENT_CHOICES,
  DENIAL_REASONS,
  LOCAL_INTERFACES,
  RUN_STATES,
  TRUST_CAUSES,
  TRUST_DECISIONS,
  TRUST_LEVELS,
  WAITING_REASONS,
  WARNING_KINDS,
} from '../../protocol/reasons.ts'
import { inspectGroups } from '../../trust/groups.ts'

type Fields = Readonly<Record<string, unknown>>

/** Names of this installation that look like ordinary words. */
export interface KnownNames {
  /** Names of contacts, agents, hosts and users. */
  readonly names: readonly string[]
  /** Words of commands and of their descriptions. */
  readonly words: readonly string[]
}

/** Whether a uid is a person's, as useradd(8) assigns them. */
const isPerson = (uid: number | null): boolean => uid !== null && uid >= 1_000 && uid <= 60_000

const jsonOf = async (path: string): Promise<Fields> => {
  const text = await readFile(path, 'utf8').catch(() => '{}')
  return attempt(() => JSON.parse(text) as Fields) ?? {}
}

const textsOf = (value: unknown): string[] => (Array.isArray(value) ? value : [value]).filter((text) => typeof text === 'string')
const keysOf = (value: unknown): string[] => (typeof value === 'object' && value !== null ? Object.keys(value) : [])

/** Keys and values of labels. */
const labelWords = (labels: unknown): string[] =>
  typeof labels === 'object' && labels !== null ? Object.entries(labels).flatMap(([key, value]) => [key, ...textsOf(value)]) : []

/** A text and each part of it that may occur alone. */
const partsOf = (text: string): string[] => [text, ...text.split(/[/=:,\s]+/)].filter((part) => part.length > 2)

/** Names from the installation's files and from the lines to be quoted. */
export const knownNames = async (config: DaemonConfig, acl: Acl | null, lines: readonly (Fields | null)[]): Promise<KnownNames> => {
  const { contacts } = await jsonOf(config.paths.contacts)
  const listed = (Array.isArray(contacts) ? contacts : []) as (Fields | null)[]
  const { groups } = await inspectGroups(config.paths.groups)
  const store = await jsonOf(config.paths.approvals)
  const ofLines = (keys: readonly string[]): string[] => lines.flatMap((line) => keys.flatMap((key) => textsOf(line?.[key])))
  const ofAcl = (acl?.allow ?? []).flatMap(({ described, commands, files }) => [
    ...textsOf(described),
    ...commands.flatMap(({ argv }) => argv),
    ...files.flatMap(({ root, owner }) => [root, ...textsOf(owner)]),
  ])
  const persons = (attempt(readPasswd) ?? []).flatMap(({ name, uid }) => (isPerson(uid) ? [name] : []))
  return {
    names: [
      ...listed.flatMap((contact) => textsOf(contact?.['name'])),
      ...groups.map(({ name }) => name),
      ...['agents', 'modes'].flatMap((key) => keysOf(store[key])),
      ...ofLines(['client_name', 'session']),
      ...textsOf(config.display_name),
      ...textsOf(config.name),
      hostname(),
      userInfo().username,
      ...persons,
    ],
    words: [...listed.flatMap((contact) => labelWords(contact?.['labels'])), ...ofAcl, ...ofLines(['argv', 'cwd', 'matched_acl'])].flatMap(
      partsOf,
    ),
  }
}

/** Words from lists that have no name. */
const FEW_WORDS =
  'acl_missing missing_exec_section enabled inbound outbound tcp noise yamux mdns contact bootstrap x0xd x0xd-network rexd x0x-desk taken unchanged refused invalid opened closed native noble exec_run'.split(
    ' ',
  )

/** Words that are the same in every installation, and so reveal nothing. */
export const KNOWN_WORDS: ReadonlySet<string> = new Set([
  ...JOURNAL_EVENTS,
  ...Object.keys(ERROR_TABLE),
  ...LOG_LEVELS,
  ...SETTING_KEYS,
  ...OPERATIONS,
  ...CONTAINMENTS,
  ...CONTAINMENT_CHOICES,
  ...DENIAL_REASONS,
  ...LOCAL_INTERFACES,
  ...RUN_STATES,
  ...TRUST_CAUSES,
  ...TRUST_DECISIONS,
  ...TRUST_LEVELS,
  ...WAITING_REASONS,
  ...WARNING_KINDS,
  VERSION,
  ...FEW_WORDS,
])
