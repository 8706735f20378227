import assert from 'node:assert/strict'
import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { readPolicy, ruleText } from '../support/local-policy.ts'
import { tempDir } from '../support/temp-dir.ts'

const program = async (path: string, text = '#!/bin/sh\nexit 0\n'): Promise<string> => {
  await writeFile(path, text)
  await chmod(path, 0o755)
  return path
}

/** A root and a sibling directory. */
const places = async (t: TestContext): Promise<{ root: string; beside: string }> => {
  const dir = await tempDir(t)
  for (const name of ['root', 'beside']) await mkdir(join(dir, name))
  return { root: join(dir, 'root'), beside: join(dir, 'beside') }
}

const problemsOf = (root: string, argv: readonly string[], security = ''): string =>
  readPolicy([root], { security, rules: ruleText('allow_commands', argv, 'any') }).problems.join('\n')

/** The problems and warnings of a rule that allows no further arguments. */
const judged = (root: string, argv: readonly string[], security = ''): { problems: string; warnings: string } => {
  const { problems, warnings } = readPolicy([root], { security, rules: ruleText('allow_commands', argv) })
  return { problems: problems.join('\n'), warnings: warnings.join('\n') }
}

test('a rule is refused if clients could replace its program', async (t) => {
  const { root, beside } = await places(t)
  const inside = await program(join(root, 'run-tests.sh'))
  const problem = new RegExp(
    `allow_commands\\[0\\]\\.argv\\[0\\]: ${inside} is below the root ${root}: clients could replace the program of this rule`,
  )
  assert.match(problemsOf(root, [inside]), problem)
  assert.equal(problemsOf(root, [inside], 'allow_write = false'), '', 'who writes nothing rewrites nothing')
  assert.equal(problemsOf(root, [await program(join(beside, 'tool'))]), '')
  assert.equal(problemsOf(root, ['true']), '')
  // The program does not exist yet, so that clients could create it.
  assert.match(problemsOf(root, [join(root, 'later')]), /later is below the root/)
  const { problems } = readPolicy([root], { rules: ruleText('deny_commands', [inside], 'any') })
  assert.deepEqual(problems, [], 'where anything may run, nothing is got around')
})

test('a rule is refused if clients could replace a link, interpreter, script or PATH directory of its program', async (t) => {
  const { root, beside } = await places(t)
  const inside = await program(join(root, 'inner'))
  await symlink(inside, join(beside, 'out'))
  assert.match(problemsOf(root, [join(beside, 'out')]), /inner is below the root|out is below the root/)
  await symlink(await program(join(beside, 'tool')), join(root, 'link'))
  assert.match(problemsOf(root, [join(root, 'link')]), /link is below the root/, 'the link can be replaced')
  const script = await program(join(beside, 'script'), `#!${inside}\n`)
  assert.match(problemsOf(root, [script]), /inner is below the root/)
  assert.match(problemsOf(root, ['sh', inside]), /argv: .*inner is below the root .* the script of this rule/)
  assert.match(problemsOf(root, ['true'], `path = ["/usr/bin", "${root}"]`), /security\.path: .* could write programs into it/)
})

test('a rule is refused if its path leads through a missing directory or a link below a root', async (t) => {
  const { root, beside } = await places(t)
  await program(join(beside, 'tool'))
  await symlink(beside, join(root, 'current'))
  for (const way of ['missing', 'missing/bin', 'current']) {
    const problem = new RegExp(`${join(root, way)}.* is below the root ${root}: clients could`)
    assert.match(problemsOf(root, [join(root, way, 'tool')]), problem)
    assert.match(problemsOf(root, ['true'], `path = ["/usr/bin", "${join(root, way)}"]`), problem)
    assert.match(problemsOf(root, ['sh', join(root, way, 'tool')]), problem)
  }
  await symlink('../root/missing', join(beside, 'later'))
  assert.match(problemsOf(root, [join(beside, 'later', 'tool')]), /tool is below the root/)
  await symlink('loop', join(beside, 'loop'))
  assert.equal(problemsOf(root, [join(beside, 'loop')]), '')
})

test('a rule is refused if its interpreter looks for the script in the working directory', async (t) => {
  const { root, beside } = await places(t)
  const refused = [
    ['python3', 'tools/x.py'],
    ['python3', '-u', '-W', 'ignore', 'x.py', '--verbose'],
    ['sh', '-eu', 'build.sh'],
    ['bash', '-o', 'pipefail', '--', 'build.sh'],
    ['perl', '-w', '-I', '/opt/lib', '../x.pl'],
    ['node', '--enable-source-maps', 'x.js'],
    ['ruby', '-w', 'x.rb'],
    ['lua', 'x.lua'],
    ['busybox', 'sh', 'x.sh'],
    ['python3', '<INT>'],
    ['sh', '<URL_PATH>'],
  ]
  for (const argv of refused) {
    assert.match(
      judged(root, argv).problems,
      /argv: ".*" is looked for where the command starts.* clients could write the script/,
      argv.join(' '),
    )
    assert.deepEqual(judged(root, argv, 'allow_write = false'), { problems: '', warnings: '' })
  }
  const tool = await program(join(beside, 'tool.py'))
  for (const argv of [
    ['python3', tool],
    ['python3', '-W', 'ignore', tool, 'data.csv'],
    ['sh', '-eu', tool, 'x'],
  ])
    assert.deepEqual(judged(root, argv), { problems: '', warnings: '' }, argv.join(' '))
})

test('code and values of options do not count as scripts, and unclear cases give a warning', async (t) => {
  const { root, beside } = await places(t)
  const tool = await program(join(beside, 'tool'))
  const fine = [
    ['sh', '-c', 'make'],
    ['bash', '-euo', 'pipefail', '-c', 'make test'],
    ['sh', '-s', 'word'],
    ['python3', '-c', 'print(1)', 'word'],
    ['python3', '-I', '-m', 'venv', 'word'],
    ['python3', '-Wonce', tool],
    ['perl', '-lane', 'print', 'word'],
    ['node', '-e', '1'],
    ['busybox', 'ls', 'word'],
    ['python3'],
    // These programs change files or the clock and start no other program.
    ['date'],
    ['cp', 'a', 'b'],
  ]
  for (const argv of fine) assert.deepEqual(judged(root, argv), { problems: '', warnings: '' }, argv.join(' '))
  const told: readonly (readonly [string[], RegExp])[] = [
    [['python3', '-m', 'pytest'], /"pytest" is looked for where the command starts, below a root: clients could write that module; say -I/],
    [['node', '-r', './x.js', tool], /if it is a script, "\.\/x\.js" is looked for/],
    [['node', '--import=./x.js', tool], /if it is a script, "\.\/x\.js" is looked for/],
    [['php', '-d', 'a=1', 'x.php'], /if it is a script, "a=1" is looked for/],
    [['env', 'python3', 'x.py'], /env may start other programs, which are not judged/],
  ]
  for (const [argv, warning] of told) {
    const { problems, warnings } = judged(root, argv)
    assert.deepEqual([problems, warnings.split('\n').length], ['', 1], argv.join(' '))
    assert.match(warnings, warning)
  }
  const { warnings } = readPolicy([root], { rules: ruleText('allow_commands', ['python3'], 'any') })
  assert.match(warnings.join(), /argv: args = "any" lets clients choose what python runs/)
})

test('policy finds the script of a rule after options with values, and warns if it is unclear', async (t) => {
  const { root, beside } = await places(t)
  const inside = await program(join(root, 'inner'))
  const tool = await program(join(beside, 'tool'))
  for (const words of [
    ['perl', '-I', beside],
    ['ruby', '-C', beside],
    ['bash', '-o', 'pipefail'],
  ])
    assert.match(judged(root, [...words, inside]).problems, /inner is below the root .* the script of this rule/, words.join(' '))
  for (const words of [
    ['node', `--require=${inside}`, tool],
    ['node', '--require', tool, inside],
    ['node', `--require=${tool}`, `--import=${inside}`, tool],
    ['bash', '--rcfile', tool, inside],
  ]) {
    const { problems, warnings } = judged(root, words)
    assert.deepEqual([problems, warnings.split('\n').length], ['', 1], words.join(' '))
    assert.match(warnings, /argv: if it is a script, .*inner is below the root .*: clients could rewrite it/)
  }
  for (const words of [
    ['perl', '-I', beside, tool, inside],
    ['python3', tool, inside],
  ])
    assert.deepEqual(judged(root, words), { problems: '', warnings: '' }, 'what a script is given is no script')
})

test('an interpreter is recognized under another name in a PATH directory', async (t) => {
  const { root, beside } = await places(t)
  await symlink('/bin/sh', join(beside, 'runner'))
  assert.match(judged(root, ['runner', 'x.sh'], `path = ["${beside}"]`).problems, /clients could write the script/)
})

test(
  'a root with files that only other users may write is not a problem',
  { skip: process.getuid?.() === 0 && 'root may write everything' },
  async (t) => {
    const { beside } = await places(t)
    assert.equal(problemsOf('/', ['true'], 'path = ["/usr/bin", "/bin"]'), '')
    assert.match(problemsOf('/', [await program(join(beside, 'tool'))]), /tool is below the root/)
  },
)
