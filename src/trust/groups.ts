import { AppError, errorText, isAppError } from '../base/errors.ts'
import { writableByOthers } from '../base/file-permissions.ts'
import { type TomlDocument, TomlReader, type TomlTable, readToml } from '../base/toml.ts'
import { groupNameProblem, parseHostExpression } from '../protocol/hosts/select-hosts.ts'
import { MAX_GROUPS, MAX_GROUP_WORDS } from '../protocol/limits/fleet.ts'

export interface Group {
  readonly name: string
  /** Terms as in a command for several hosts. An empty list means no contact. */
  readonly words: readonly string[]
}

interface GroupsReading {
  readonly groups: readonly Group[]
  /** Problems that prevent the daemon's start. */
  readonly problems: readonly string[]
}

/** Groups that a group's terms name, or null if the terms are invalid. */
const namedIn = (toml: TomlReader, { name, words }: Group): string[] | null => {
  if (words.length === 0) return []
  try {
    const { include, leaveOut } = parseHostExpression(words)
    return [...include, ...leaveOut].flatMap((part) => (part.kind === 'group' ? [part.name] : []))
  } catch (error) {
    toml.problem(['groups', name], errorText(error))
    return null
  }
}

/** Path from a group back to itself, or null. Each group is inspected once. */
const circleOf = (named: ReadonlyMap<string, readonly string[]>): string[] | null => {
  const done = new Set<string>()
  const way: string[] = []
  const visit = (name: string): string[] | null => {
    if (way.includes(name)) return [...way.slice(way.indexOf(name)), name]
    if (done.has(name)) return null
    way.push(name)
    for (const next of named.get(name) ?? []) {
      const circle = visit(next)
      if (circle !== null) return circle
    }
    way.pop()
    done.add(name)
    return null
  }
  for (const name of named.keys()) {
    const circle = visit(name)
    if (circle !== null) return circle
  }
  return null
}

const groupsIn = (toml: TomlReader, table: TomlTable): Group[] =>
  Object.keys(table).flatMap((name) => {
    const problem = groupNameProblem(name)
    if (problem !== null) toml.problem(['groups', name], problem)
    const words = toml.strings(['groups', name], table[name])
    return words === null || problem !== null ? [] : [{ name, words }]
  })

const readGroups = (document: TomlDocument): GroupsReading => {
  const toml = new TomlReader(document, 'bad_groups')
  toml.knownKeys([], document.value, ['groups'])
  const said = document.value['groups'] ?? {}
  const table = toml.table(['groups'], said, Object.keys(said))
  const groups = table === null ? [] : groupsIn(toml, table)
  if (groups.length > MAX_GROUPS) toml.problem(['groups'], `has ${groups.length} groups; the limit is ${MAX_GROUPS}`)
  const words = groups.reduce((sum, group) => sum + group.words.length, 0)
  if (words > MAX_GROUP_WORDS) toml.problem(['groups'], `has ${words} words in its groups; the limit is ${MAX_GROUP_WORDS}`)
  if (toml.problems.length > 0) return { groups, problems: toml.problems }
  const named = new Map(
    groups.flatMap((group) => {
      const names = namedIn(toml, group)
      return names === null ? [] : [[group.name, names] as const]
    }),
  )
  const known = new Set(groups.map(({ name }) => name))
  for (const [name, others] of named)
    for (const other of new Set(others)) if (!known.has(other)) toml.problem(['groups', name], `unknown group @${other}`)
  const circle = circleOf(named)
  if (circle !== null) toml.problem(['groups', circle[0]!], `this group contains itself: ${circle.map((name) => `@${name}`).join(' has ')}`)
  return { groups, problems: toml.problems }
}

/** Reads and checks `groups.toml`. Without a file there are no groups. */
export const inspectGroups = async (path: string): Promise<GroupsReading> => {
  try {
    const document = await readToml(path, 'bad_groups', { bigints: true })
    const { groups, problems } = readGroups(document)
    return { groups, problems: [...writableByOthers(path), ...problems] }
  } catch (error) {
    return { groups: [], problems: isAppError(error, 'not_found') ? [] : [errorText(error)] }
  }
}

/** Throws `bad_groups` with one line for each problem, which must prevent the start. */
export const loadGroups = async (path: string): Promise<readonly Group[]> => {
  const { groups, problems } = await inspectGroups(path)
  if (problems.length > 0) throw new AppError('bad_groups', problems.join('\n'), { data: { file: path, problems } })
  return groups
}
