// Runs some tests of the built programs with the single files. These tests cover most in the least time.
import assert from 'node:assert/strict'
import { join } from 'node:path'

import { packageRoot } from '../runtime.mjs'
import { OUT, ran } from './place.mjs'

const TRIED = [
  {
    file: 'e2e/exec.test.ts',
    names: [
      'an allowed argv runs',
      'a denial names',
      'stdout and stderr stay separate',
      'output arrives while',
      '--json prints',
      'exec sessions lists',
    ],
    variable: 'X0X_TEST_CLI',
    program: 'x0x',
  },
  {
    file: 'e2e/rexd/exec-command.test.ts',
    names: [
      'rexd exec runs a command through a local rexd',
      'standard input and an output of many megabytes',
      'a signal reaches',
      'killing rexd exec',
      'a terminal has a size',
    ],
    variable: 'X0X_TEST_REXD',
    program: 'rexd',
  },
]

/** Throws the output of the runner if a test fails, or if one of the names matches no test. */
export const checkTests = async () => {
  const all = TRIED.map(async ({ file, names, variable, program }) => {
    const env = { ...process.env, [variable]: join(OUT, `${program}-linux-${process.arch}`) }
    const which = names.map((name) => `--test-name-pattern=${name}`)
    // With this variable, the runner would behave as part of another test run.
    delete env.NODE_TEST_CONTEXT
    const said = await ran(process.execPath, ['--test', '--test-reporter=spec', ...which, file], { env, cwd: packageRoot })
    assert.match(said, new RegExp(`^ℹ pass ${names.length}$`, 'm'), `${file}: not each of ${names.join(', ')} ran once:\n${said}`)
  })
  await Promise.all(all)
}
