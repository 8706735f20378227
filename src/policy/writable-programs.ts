import { accessSync, constants } from 'node:fs'
import { basename, dirname, isAbsolute, join } from 'node:path'
import { attempt } from '../base/errors.ts'
import { resolveSteps } from '../base/path-resolution.ts'
import type { TomlPath, TomlReader } from '../base/toml.ts'
import { runsNoWord } from './approval/transparent.ts'
import { interpreterName, mayRunOthers } from './escapes.ts'
import { MULTI_CALL, findExecutable, finderIn } from './executable.ts'
import type { Root } from './local/file-permit.ts'
import type { CommandRule, LocalPolicy } from './local/policy.ts'
import { interpretersOf, pathsIn, scriptOf } from './scripts.ts'

/**
 * If only listed commands may run, clients must not be able to write those. Reports each rule whose program or interpreter clients could
 * change through `fs.write`, and each such directory of PATH.
 */
export const judgeWritablePrograms = (toml: TomlReader, { allow_commands, granted, roots, env }: LocalPolicy): void => {
  if (allow_commands === null || !granted.has('fs.write')) return
  const path = env['PATH'] ?? ''
  for (const directory of path.split(':')) {
    const root = changeable(join(directory, 'program'), roots)
    if (root !== null)
      toml.problem(['security', 'path'], `${directory} is below the root ${root}: clients could write programs into it; ${REMEDY}`)
  }
  for (const [index, rule] of allow_commands.entries()) judgeRule(toml, rule, index, { path, roots })
}

const REMEDY = 'take allow_write back, or keep it outside the roots'

const judgeRule = (toml: TomlReader, rule: CommandRule, index: number, { path, roots }: { path: string; roots: readonly Root[] }): void => {
  const at = ['security', 'allow_commands', index, 'argv']
  const [name = ''] = rule.argv
  const lookup = findExecutable(name, path)
  const programs =
    lookup.kind === 'found' ? [lookup.executable.path, ...chainOf(lookup.executable.path, path)] : isAbsolute(name) ? [name] : []
  for (const program of new Set(programs)) {
    const root = changeable(program, roots)
    if (root !== null)
      toml.problem([...at, 0], `${program} is below the root ${root}: clients could replace the program of this rule; ${REMEDY}`)
  }
  const isMany = MULTI_CALL.includes(basename(name)) && rule.argv.length > 1
  const [called = '', ...rest] = isMany ? rule.argv.slice(1) : rule.argv
  const interpreter = interpreterName(called) ?? (isMany || lookup.kind !== 'found' ? null : interpreterName(lookup.executable.path))
  if (interpreter !== null) judgeScript(toml, at, { interpreter, rest, anyArguments: rule.anyArguments, roots })
  else if (mayRunOthers(called, runsNoWord))
    toml.warning(
      at,
      `${called} may start other programs, which are not judged; if it does, allow those themselves, by their absolute paths`,
    )
}

/** A command starts below a root, in a directory that the client chooses. */
const judgeScript = (
  toml: TomlReader,
  at: TomlPath,
  {
    interpreter,
    rest,
    anyArguments,
    roots,
  }: { interpreter: string; rest: readonly string[]; anyArguments: boolean; roots: readonly Root[] },
): void => {
  const given = scriptOf(interpreter, rest)
  // Usually the first absolute path is the script; if it is the value of an option, the script comes later.
  const meant = new Set([rest.find((token) => isAbsolute(token)), given.kind === 'script' ? given.word : undefined])
  for (const path of new Set(pathsIn(rest))) {
    const root = meant.has(path) || given.kind === 'unsure' ? changeable(path, roots) : null
    if (root === null) continue
    const where = `${path} is below the root ${root}: clients could rewrite`
    if (meant.has(path)) toml.problem(at, `${where} the script of this rule; ${REMEDY}`)
    else toml.warning(at, `if it is a script, ${where} it; ${REMEDY}`)
  }
  if (given.kind === 'nothing' && anyArguments) toml.warning(at, `args = "any" lets clients choose what ${interpreter} runs`)
  if (!('word' in given) || isAbsolute(given.word)) return
  const where = `${JSON.stringify(given.word)} is looked for where the command starts, below a root: clients could write`
  if (given.kind === 'script') toml.problem(at, `${where} the script of this rule; ${REMEDY}, and give its absolute path`)
  else if (given.kind === 'module') toml.warning(at, `${where} that module; say -I, or give a script by its absolute path`)
  else toml.warning(at, `if it is a script, ${where} it; give its absolute path`)
}

const chainOf = (program: string, path: string): string[] => interpretersOf(program, finderIn(path)).map(({ interpreter }) => interpreter)

/** The root below which `fs.write` could replace this file, or null if none. */
const changeable = (path: string, roots: readonly Root[]): string | null => {
  const places = placesOf(path)
  for (const place of places) {
    const root = roots.find(({ real }) => real === '/' || place.startsWith(`${real}/`))
    if (root !== undefined && (isWritable(dirname(place)) || (place === places.at(-1) && isWritable(place)))) return root.path
  }
  return null
}

/** The file and all links to it. The last path may not exist. `fs.write` cannot replace directories. */
const placesOf = (path: string): string[] => {
  const places: string[] = []
  try {
    for (const { path: place, info } of resolveSteps(path)) if (info?.isDirectory() !== true) places.push(place)
  } catch {
    // A directory that this process may not read cannot be written through it.
  }
  return places
}

const isWritable = (path: string): boolean => attempt(() => accessSync(path, constants.W_OK)) !== null
