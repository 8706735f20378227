import { accessSync, constants, lstatSync, readlinkSync, type Stats } from 'node:fs'
import { dirname, isAbsolute, join } from 'node:path'

import type { TomlReader } from '../base/toml-reader.ts'
import { runsScripts } from './escapes.ts'
import { findExecutable, finderIn } from './executable.ts'
import type { Root } from './file-permit.ts'
import { interpretersOf } from './interpreters.ts'
import type { CommandRule, LocalPolicy } from './local-policy.ts'

/**
 * Where only listed commands may run, whoever writes files must not be able to write those: a problem for each rule
 * whose program, or what interprets it, callers could change through `fs.write`, and for each such directory of PATH.
 */
export const judgeWritablePrograms = (toml: TomlReader, { allow_commands, granted, roots, env }: LocalPolicy): void => {
  if (allow_commands === null || !granted.has('fs.write')) return
  const path = env['PATH'] ?? ''
  for (const directory of path.split(':')) {
    const root = changeable(join(directory, 'program'), roots)
    if (root !== null)
      toml.problem(['security', 'path'], `${directory} is below the root ${root}: callers could put programs there; ${REMEDY}`)
  }
  for (const [index, rule] of allow_commands.entries()) judgeRule(toml, rule, index, { path, roots })
}

const REMEDY = 'take allow_write back, or keep it outside the roots'

const judgeRule = (
  toml: TomlReader,
  { argv }: CommandRule,
  index: number,
  { path, roots }: { path: string; roots: readonly Root[] },
): void => {
  const at = ['security', 'allow_commands', index, 'argv']
  const [name = '', ...rest] = argv
  const lookup = findExecutable(name, path)
  const programs =
    lookup.kind === 'found' ? [lookup.executable.path, ...chainOf(lookup.executable.path, path)] : isAbsolute(name) ? [name] : []
  for (const program of new Set(programs)) {
    const root = changeable(program, roots)
    if (root !== null)
      toml.problem([...at, 0], `${program} is below the root ${root}: callers could rewrite what this rule runs; ${REMEDY}`)
  }
  const script = runsScripts(name) ? rest.find((token) => isAbsolute(token)) : undefined
  const root = script === undefined ? null : changeable(script, roots)
  if (root !== null)
    toml.problem(at, `${script} is below the root ${root}: callers could rewrite the script that this rule runs; ${REMEDY}`)
}

const chainOf = (program: string, path: string): string[] => interpretersOf(program, finderIn(path)).map(({ interpreter }) => interpreter)

/** The root below which `fs.write` could put another file in the place of this one; null where there is none. */
const changeable = (path: string, roots: readonly Root[]): string | null => {
  const places = placesOf(path)
  for (const place of places) {
    const root = roots.find(({ real }) => real === '/' || place.startsWith(`${real}/`))
    if (root !== undefined && (isWritable(dirname(place)) || (place === places.at(-1) && isWritable(place)))) return root.path
  }
  return null
}

/** The kernel's own bound on links in one path (path_resolution(7)). */
const MAX_LINKS = 40

/** What leads to the file: each link on the way, and the file; where something is missing, that is the last. Directories cannot be replaced through `fs.write`. */
const placesOf = (path: string): string[] => {
  const places: string[] = []
  const ahead = path.split('/')
  for (let at = '/', links = 0; ahead.length > 0 && links <= MAX_LINKS;) {
    at = join(at, ahead.shift()!)
    const info = standingAt(at)
    if (info?.isDirectory()) continue
    places.push(at)
    if (!info?.isSymbolicLink()) break
    const target = readlinkSync(at)
    ahead.unshift(...target.split('/'))
    at = isAbsolute(target) ? '/' : dirname(at)
    links += 1
  }
  return places
}

const standingAt = (path: string): Stats | undefined => {
  try {
    return lstatSync(path)
  } catch {
    return undefined
  }
}

const isWritable = (path: string): boolean => {
  try {
    accessSync(path, constants.W_OK)
    return true
  } catch {
    return false
  }
}
