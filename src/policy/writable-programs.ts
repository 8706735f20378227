import { accessSync, constants, realpathSync } from 'node:fs'
import { dirname, isAbsolute, join, posix } from 'node:path'

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
  for (const place of placesOf(path)) {
    const root = roots.find(({ real }) => real === '/' || place.startsWith(`${real}/`))
    if (root !== undefined && (isWritable(place) || isWritable(dirname(place)))) return root.path
  }
  return null
}

/** The name itself, in the directory that it really is in, and the file that it leads to. */
const placesOf = (path: string): string[] => {
  const real = (one: string): string[] => {
    try {
      return [realpathSync(one)]
    } catch {
      return []
    }
  }
  return [...real(dirname(path)).map((directory) => posix.join(directory, posix.basename(path))), ...real(path)]
}

const isWritable = (path: string): boolean => {
  try {
    accessSync(path, constants.W_OK)
    return true
  } catch {
    return false
  }
}
