// Checks the sources without running the programs. Prints one line for each check, and the full output of checks that fail.
import { spawn } from 'node:child_process'
import { join } from 'node:path'

import { packageRoot } from './runtime.mjs'

const tool = (name) => join(packageRoot, 'node_modules', '.bin', name)
const test = (...files) => [process.execPath, '--test', '--test-reporter=spec', ...files]

const CHECKS = {
  types: [tool('tsc'), '--noEmit'],
  // The page has the globals of a browser.
  'page types': [tool('tsc'), '--noEmit', '-p', 'src/web'],
  lint: [tool('oxlint'), '--type-aware', '--deny-warnings'],
  format: [tool('oxfmt'), '--check'],
  architecture: test('test/architecture.test.ts'),
  docs: test('test/docs-generated.test.ts', 'test/docs-links.test.ts'),
  language: [process.execPath, 'deploy/prose/main.mjs'],
  'dead code': [tool('knip'), '--no-progress'],
}

const run = (name, [file, ...args]) =>
  new Promise((resolve) => {
    const begun = performance.now()
    const child = spawn(file, args, { cwd: packageRoot, stdio: ['ignore', 'pipe', 'pipe'] })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (output += text))
    const done = (ok) => {
      console.log(`${ok ? 'ok  ' : 'FAIL'} ${name.padEnd(12)} ${((performance.now() - begun) / 1000).toFixed(1)} s`)
      resolve(ok ? '' : `\n── ${name} ──\n${output.trimEnd()}\n`)
    }
    child.once('error', (error) => {
      output += error.message
      done(false)
    })
    child.once('close', (code) => done(code === 0))
  })

const wanted = process.argv.slice(2)
const unknown = wanted.filter((name) => !(name in CHECKS))
if (unknown.length > 0) {
  console.error(`no such check: ${unknown.join(', ')}; there are ${Object.keys(CHECKS).join(', ')}`)
  process.exit(2)
}
const chosen = Object.entries(CHECKS).filter(([name]) => wanted.length === 0 || wanted.includes(name))
const failures = (await Promise.all(chosen.map(([name, command]) => run(name, command)))).filter(Boolean)
for (const text of failures) console.log(text)
process.exitCode = failures.length === 0 ? 0 : 1
