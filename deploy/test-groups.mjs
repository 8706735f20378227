// Says which test files share a process. Most test files take less time than the start of a process that loads the tested modules.
import { readFileSync, statSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'

import { packageRoot } from './runtime.mjs'

/** A glob pattern of the test files that a name means: a file, or all below a directory. */
export const testFiles = (name) => (statSync(name, { throwIfNoEntry: false })?.isDirectory() ? join(name, '**/*.test.ts') : name)

/** Most files in a group. */
const MOST_IN_GROUP = 12

/** The slowest files. They start first, because a slow file that starts last would run alone at the end. */
export const LONGEST = ['test/supervision/served-rexd.test.ts']

/** Code that changes the process for all files in it: hooks, environment variables, handlers and globals. */
const CHANGES_IT = /^(after|before|afterEach|beforeEach)\(|process\.(env(\.\w+|\[[^\]]*\]) = |chdir|umask|on\(|once\()|globalThis\S* = /m

/** Code that measures its process or starts others. */
const ABOUT_IT =
  /process\.(exit|argv|pid\b|memoryUsage|cpuUsage|getActive)|\/proc\/self|\bgc\(|\bmock\b|node:(child_process|worker_threads|v8|async_hooks)'|new MeshOfDaemons|MeshOfDaemons\.create|TestDaemon|startTestRexd/

const OWN_IMPORT = /^(?:import|export) [^'"]*from '(\.[^']+)'/gm

/** All test helpers that a file imports, directly or not. */
const helpersOf = (file, seen = new Set()) => {
  for (const [, from] of readFileSync(file, 'utf8').matchAll(OWN_IMPORT)) {
    const path = join(dirname(file), from)
    if (seen.has(path) || !/^(test|e2e)[/\\]/.test(relative(packageRoot, path))) continue
    seen.add(path)
    helpersOf(path, seen)
  }
  return seen
}

/** True if the file can share its process with other files. */
export const leavesNoTrace = (file) => {
  const path = join(packageRoot, file)
  const text = readFileSync(path, 'utf8')
  return !ABOUT_IT.test(text) && ![path, ...helpersOf(path)].some((each) => CHANGES_IT.test(readFileSync(each, 'utf8')))
}

/** The directory below test, such as `test-policy` for test/policy. */
const areaOf = (file) => file.split('/').slice(0, 2).join('-')

/** Splits files into groups of about the same size, at most MOST_IN_GROUP. */
const parts = (name, files) => {
  const count = Math.ceil(files.length / MOST_IN_GROUP)
  return Array.from({ length: count }, (_, at) => ({ name: `${name}-${at + 1}`, files: files.filter((_file, i) => i % count === at) }))
}

/** Sorts files into groups that share a process and files that run alone. Tests of whole daemons run alone, because they would gain nothing. */
export const grouped = (files) => {
  const [longest, others] = [LONGEST.filter((file) => files.includes(file)), files.filter((file) => !LONGEST.includes(file))]
  const together = others.filter((file) => file.split('/').length > 2 && file.startsWith('test/') && leavesNoTrace(file))
  const areas = [...Map.groupBy(together, areaOf)].flatMap(([name, all]) => parts(name, all)).filter((group) => group.files.length > 1)
  const inGroups = new Set(areas.flatMap((group) => group.files))
  // The test runner sorts by name, so that these names must be the first.
  const first = longest.map((file) => ({ name: `first-${basename(file, '.test.ts')}`, files: [file] }))
  return { groups: [...first, ...areas], alone: others.filter((file) => !inGroups.has(file)) }
}
