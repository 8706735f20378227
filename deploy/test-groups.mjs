// Which files of tests share a process: to start one and to load what they test takes longer than most of them do.
import { readFileSync, statSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'

import { packageRoot } from './runtime.mjs'

/** What is to be run where this is named: of a directory, every test below it. */
export const testFiles = (name) => (statSync(name, { throwIfNoEntry: false })?.isDirectory() ? join(name, '**/*.test.ts') : name)

/** Beside so many others a file waits for its turn no longer than it would take to start it. */
const MOST_IN_GROUP = 12

/** What takes longest, and mostly waits: begun first, for the runner goes by names, and the last of these would hold up the end alone. */
export const LONGEST = ['test/supervision/served-rexd.test.ts']

/** What changes the process for every file in it: hooks, variables, handlers, globals. */
const CHANGES_IT = /^(after|before|afterEach|beforeEach)\(|process\.(env(\.\w+|\[[^\]]*\]) = |chdir|umask|on\(|once\()|globalThis\S* = /m

/** What is about the process itself, or others of its own: descriptors, memory, processor time, children. */
const ABOUT_IT =
  /process\.(exit|argv|pid\b|memoryUsage|cpuUsage|getActive)|\/proc\/self|\bgc\(|\bmock\b|node:(child_process|worker_threads|v8|async_hooks)'|new MeshOfDaemons|MeshOfDaemons\.create|TestDaemon|startTestRexd/

const OWN_IMPORT = /^(?:import|export) [^'"]*from '(\.[^']+)'/gm

/** The helpers that a file imports, and those that they do; not what it tests. */
const helpersOf = (file, seen = new Set()) => {
  for (const [, from] of readFileSync(file, 'utf8').matchAll(OWN_IMPORT)) {
    const path = join(dirname(file), from)
    if (seen.has(path) || !/^(test|e2e)[/\\]/.test(relative(packageRoot, path))) continue
    seen.add(path)
    helpersOf(path, seen)
  }
  return seen
}

/** Whether others may run in the process of this file, before it and after it. */
export const leavesNoTrace = (file) => {
  const path = join(packageRoot, file)
  const text = readFileSync(path, 'utf8')
  return !ABOUT_IT.test(text) && ![path, ...helpersOf(path)].some((each) => CHANGES_IT.test(readFileSync(each, 'utf8')))
}

/** Files of one room, such as test/policy. */
const room = (file) => file.split('/').slice(0, 2).join('-')

/** As equal as can be: of `files` so many that none has more than MOST_IN_GROUP. */
const parts = (name, files) => {
  const count = Math.ceil(files.length / MOST_IN_GROUP)
  return Array.from({ length: count }, (_, at) => ({ name: `${name}-${at + 1}`, files: files.filter((_file, i) => i % count === at) }))
}

/** Which of these share a process, by room, and which have one of their own: what starts whole daemons gains nothing. */
export const grouped = (files) => {
  const [longest, others] = [LONGEST.filter((file) => files.includes(file)), files.filter((file) => !LONGEST.includes(file))]
  const together = others.filter((file) => file.split('/').length > 2 && file.startsWith('test/') && leavesNoTrace(file))
  const rooms = [...Map.groupBy(together, room)].flatMap(([name, all]) => parts(name, all)).filter((group) => group.files.length > 1)
  const inGroups = new Set(rooms.flatMap((group) => group.files))
  // By its name before all rooms.
  const first = longest.map((file) => ({ name: `first-${basename(file, '.test.ts')}`, files: [file] }))
  return { groups: [...first, ...rooms], alone: others.filter((file) => !inGroups.has(file)) }
}
