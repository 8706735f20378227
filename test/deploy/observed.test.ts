import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { NETWORK_METRICS } from '../../src/doors/rest/metrics.ts'
import { EXEC_METRICS } from '../../src/executor/views.ts'

const DEPLOY = join(import.meta.dirname, '..', '..', 'deploy')
const RULES = join(DEPLOY, 'prometheus', 'x0x.rules.yml')

const read = (path: string): string => readFileSync(path, 'utf8')
const noPromtool = spawnSync('promtool', ['--version']).error === undefined ? false : 'there is no promtool'

/** The names that queries use. A histogram has the names of its series. */
const SERIES = new Set(
  [...NETWORK_METRICS, ...EXEC_METRICS].flatMap(({ name, type }) =>
    type === 'histogram' ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name],
  ),
)

/** Returns every x0x metric in an expression. */
const namesIn = (expression: string): string[] => expression.match(/\bx0x_\w+/g) ?? []

test('each alert and each panel uses only existing metrics', () => {
  const rules = [...read(RULES).matchAll(/^ +expr: (.*)$/gm)].map(([, expression]) => expression!)
  const { panels } = JSON.parse(read(join(DEPLOY, 'grafana', 'x0x.json'))) as { panels: { targets: { expr: string }[] }[] }
  const queries = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr))
  assert.ok(rules.length > 10 && queries.length > 30, `${rules.length} rules, ${queries.length} queries`)
  for (const expression of [...rules, ...queries]) {
    const names = namesIn(expression)
    assert.ok(names.length > 0 || expression.startsWith('up{'), expression)
    for (const name of names) assert.ok(SERIES.has(name), `${name} in ${expression}`)
  }
  assert.deepEqual(namesIn('rate(x0x_no_such_total{a="b"}[5m]) > x0x_dm_links'), ['x0x_no_such_total', 'x0x_dm_links'])
})

for (const [what, ...words] of [
  ['are valid', 'check', 'rules', RULES],
  ['fire in each tested situation', 'test', 'rules', join(DEPLOY, 'prometheus', 'x0x.rules.test.yml')],
])
  test(`the alerts ${what}`, { skip: noPromtool }, () => {
    const { status, stdout, stderr } = spawnSync('promtool', words, { encoding: 'utf8' })
    assert.equal(status, 0, stdout + stderr)
  })
