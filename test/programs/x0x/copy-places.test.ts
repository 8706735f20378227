import assert from 'node:assert/strict'
import { test } from 'node:test'

import { isAppError } from '../../../src/base/errors.ts'
import { copyOrderOf, listedPlace } from '../../../src/programs/x0x/copy/places.ts'

const order = (words: readonly string[], over: { recursive?: boolean; json?: boolean } = {}) =>
  copyOrderOf(words, { recursive: false, json: false, fanout: false, ...over })

const remote = (host: string, path: string, slash = false) => ({ kind: 'remote', host, path, slash })
const local = (path: string, slash = false) => ({ kind: 'local', path, slash })

test('the position of HOST:/PATH decides the direction of a copy', () => {
  assert.deepEqual(order(['a', './b:c', 'bob:/srv/']), {
    direction: 'upload',
    host: 'bob',
    isFanout: false,
    sources: [local('a'), local('./b:c')],
    destination: remote('bob', '/srv', true),
  })
  assert.deepEqual(order(['bob:/a', 'bob:/b/../c', '.']), {
    direction: 'download',
    host: 'bob',
    sources: [remote('bob', '/a'), remote('bob', '/c')],
    destination: local('.', true),
  })
  assert.deepEqual(order(['-', 'bob:/a']).sources, [{ kind: 'stream' }])
  assert.deepEqual(order(['bob:/a', '-']).destination, { kind: 'stream' })
})

test('a colon after a slash is part of the path, on both sides', () => {
  assert.deepEqual(order(['/a:b', 'bob:/c:d']), {
    direction: 'upload',
    host: 'bob',
    isFanout: false,
    sources: [local('/a:b')],
    destination: remote('bob', '/c:d'),
  })
})

test('remote paths are normalized', () => {
  for (const [word, path, slash] of [
    ['bob:/', '/', true],
    ['bob:/a//b', '/a/b', false],
    ['bob:/a/./b/', '/a/b', true],
    ['bob:/a/..', '/', true],
    ['bob:/a/.', '/a', true],
    ['bob:/ein blank', '/ein blank', false],
  ] as const)
    assert.deepEqual(listedPlace(word), remote('bob', path, slash), word)
})

/** The message of a usage error, with its next step. */
const refusal = (work: () => unknown): string => {
  try {
    work()
  } catch (error) {
    assert.ok(isAppError(error, 'bad_request'), String(error))
    return `${error.message}\n${String(error.data['next'] ?? '')}`
  }
  return assert.fail('it was accepted')
}

test('wrong combinations of places are refused, with the next step', () => {
  for (const [words, text] of [
    [[], /give a source and a destination\nTry: x0x cp/],
    [['a'], /give a source/],
    [['a', 'b'], /one side must be HOST:\/PATH\nTry: x0x cp report\.pdf bob/],
    [['a', '-'], /one side must be/],
    [['bob:/a', 'bob:/b'], /both sides are on agents/],
    [['a', 'bob:/b', '/c'], /some sources are on this machine/],
    [['bob:/a', 'carol:/b', '.'], /on bob and carol: x0x cp copies from one host/],
    [['bob:a', '.'], /bob:a: paths on an agent are absolute\nTry: bob:\/a/],
    [['bob:', '.'], /absolute/],
    [['bob:~/a', '.'], /absolute\nTry: bob:\/PATH\/a/],
    [[':/a', '.'], /the host is missing/],
    [['web[1-3]:/a', '.'], /"web\[1-3\]" is not the name of one host.*\nTry: .*once for each host/],
    [['@db:/a', '.'], /not the name of one host/],
    [['', 'bob:/a'], /a path is empty/],
    [['a\0b', 'bob:/a\0'], /has a character/],
    [['a', `bob:/${'x'.repeat(5_000)}`], /too long/],
    [['-', 'a', 'bob:/b'], /standard input becomes one file/],
    [['-', 'bob:/b/'], /name it\nTry: x0x cp - bob:\/b\/NAME/],
    [['bob:/a', 'bob:/b', '-'], /only one file/],
  ] as const)
    assert.match(
      refusal(() => order(words)),
      text,
      words.join(' '),
    )
  assert.match(
    refusal(() => order(['-', 'bob:/a'], { recursive: true })),
    /--recursive/,
  )
  assert.match(
    refusal(() => order(['bob:/a', '-'], { json: true })),
    /--json/,
  )
  assert.match(
    refusal(() => listedPlace('/srv')),
    /is not HOST:\/PATH\nTry: x0x ls bob/,
  )
  assert.match(
    refusal(() => listedPlace('-')),
    /is not HOST:\/PATH/,
  )
})
