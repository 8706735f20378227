import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { deskPlace, type DeskPlaceHandle } from '../../test/support/desk-place.ts'
import { questionOf } from '../../test/support/approval-request.ts'
import { linkOf, startUi, type UiProgram } from '../../test/support/ui-program.ts'
import { openPage, seriousFaults, skipsBrowser, WITHOUT_BROWSER, type BrowserPage } from './browser.ts'
import { patient } from '../../test/support/wait-limits.ts'

const it = (title: string, body: (t: TestContext) => Promise<void>): void =>
  void test(`${title}${WITHOUT_BROWSER}`, { skip: skipsBrowser }, body)

interface Scene extends BrowserPage {
  readonly place: DeskPlaceHandle
  readonly ui: UiProgram
}

/** A desk, `x0x ui` beside it, and a browser that has followed its link. */
const scene = async (t: TestContext): Promise<Scene> => {
  const place = await deskPlace(t)
  const ui = startUi(t, ['--data-dir', place.paths.dir, '--json'])
  const browser = await openPage(t)
  await browser.page.goto(linkOf(await ui.next()).url)
  await browser.page.getByText('The desk asks you').waitFor()
  return { place, ui, ...browser }
}

const never = new AbortController().signal
const nobody = (): void => undefined

/** The buttons of a question that has stood still for a moment. */
const press = async ({ page }: Pick<Scene, 'page'>, name: string): Promise<void> => {
  await page.getByRole('button', { name }).waitFor()
  await page.waitForTimeout(700)
  await page.getByRole('button', { name }).click()
}

it('what an engine asks a real desk is on the page within a second, and allowed once by its digest', async (t) => {
  const { place, page, complaints } = await scene(t)
  const engine = place.engine('x0x mcp')
  // Each as the first of its permit; on a busy machine one of them may wait for the machine.
  const took: number[] = []
  for (const digit of ['1', '2', '3']) {
    const asked = performance.now()
    const denied = engine.ask(questionOf({ permit_sha256: digit.repeat(64) }), never, nobody)
    await page.locator('article:not(.settled)').waitFor()
    took.push(performance.now() - asked)
    await press({ page }, 'Deny')
    assert.equal((await denied).decision, 'deny')
    await page.getByRole('button', { name: /Clear/ }).click()
  }
  assert.ok(Math.min(...took) < 1_000, took.join())
  const answer = engine.ask(questionOf(), never, nobody)
  await press({ page }, 'Allow once')
  const { decision, by, permit_sha256 } = await answer
  assert.deepEqual([decision, by, permit_sha256], ['allow', 'human:x0x ui', questionOf().permit_sha256])
  await page.getByText(/allowed by human:x0x ui/).waitFor()
  assert.deepEqual(await seriousFaults(page), [])
  // Once is once.
  const again = engine.ask(questionOf(), never, nobody)
  await press({ page }, 'Deny')
  assert.equal((await again).decision, 'deny')
  assert.deepEqual(complaints, [])
})

it('a decision of which one digit was changed on its way is refused, and the question goes on waiting', async (t) => {
  const { place, page } = await scene(t)
  await page.route('**/api/decide', async (route) => {
    const body = JSON.parse(route.request().postData() ?? '') as { permit_sha256: string }
    await route.continue({ postData: JSON.stringify({ ...body, permit_sha256: `b${body.permit_sha256.slice(1)}` }) })
  })
  const answer = place.engine().ask(questionOf(), never, nobody)
  await press({ page }, 'Allow once')
  await page
    .locator('.said')
    .getByText(/permit/)
    .waitFor()
  await page.unroute('**/api/decide')
  await press({ page }, 'Deny')
  assert.equal((await answer).decision, 'deny')
})

it('always lasts until it is taken back, and a terminal that is faster wins and is named', async (t) => {
  const { place, page } = await scene(t)
  const engine = place.engine()
  const first = engine.ask(questionOf(), never, nobody)
  await page.getByRole('button', { name: 'Always …' }).click()
  await page.getByLabel('Uses at most').fill('2')
  await press({ page }, 'Always allow')

  assert.equal((await first).decision, 'allow')
  assert.match((await engine.ask(questionOf({ permit_sha256: 'c'.repeat(64) }), never, nobody)).by, /^grant:g_/)
  const human = await place.human('terminal')
  const [grant] = await human.grants()
  assert.equal(grant?.uses_left, 0)
  const contested = engine.ask(questionOf({ permit_sha256: 'd'.repeat(64), grant_sha256: 'e'.repeat(64) }), never, nobody)
  await page.locator('article:not(.settled)').waitFor()
  const { questions } = await human.pending()
  await human.decide({ question_id: questions[0]!.question_id, permit_sha256: 'd'.repeat(64), decision: 'deny' })
  await page.getByText('denied by human:terminal').waitFor()
  assert.equal((await contested).decision, 'deny')
})

it('a page that is closed is nobody: what waits, and what is asked then, is denied within two seconds', async (t) => {
  const { place, page } = await scene(t)
  const engine = place.engine()
  const waiting = engine.ask(questionOf(), never, nobody)
  await page.getByRole('article').waitFor()
  await page.close()
  const closed = performance.now()
  const { decision } = await waiting
  assert.equal(decision, 'no_ui')
  assert.ok(performance.now() - closed < patient(2_000))
  const later = performance.now()
  assert.equal((await engine.ask(questionOf({ permit_sha256: 'c'.repeat(64) }), never, nobody)).decision, 'no_ui')
  assert.ok(performance.now() - later < patient(2_000))
})

it('a page that is loaded again keeps what waits, and x0x ui that ends is told of', async (t) => {
  const { place, page, ui } = await scene(t)
  const answer = place.engine().ask(questionOf(), never, nobody)
  await page.getByRole('article').waitFor()
  await page.reload()
  await press({ page }, 'Allow once')
  assert.equal((await answer).decision, 'allow')
  ui.child.kill('SIGINT')
  await page.getByText('x0x ui does not answer').waitFor()
  assert.deepEqual(await ui.ended, [130, null])
})

it('a desk that ends and comes back is followed again, and what it had asked is void on the page', async (t) => {
  const { place, page } = await scene(t)
  const answer = place
    .engine()
    .ask(questionOf(), never, nobody)
    .catch(() => null)
  await page.getByRole('article').waitFor()
  await place.restart()
  await answer
  await page.locator('article.settled').waitFor()
  await page.getByText('The desk asks you').waitFor()
  const next = place.engine().ask(questionOf({ permit_sha256: 'c'.repeat(64) }), never, nobody)
  await press({ page }, 'Allow once')
  assert.equal((await next).decision, 'allow')
})

it('the journal of the desk is on the page, by event and by word', async (t) => {
  const { place, page } = await scene(t)
  const answer = place.engine().ask(questionOf({ argv: ['git', 'pu\u202esh'] }), never, nobody)
  await press({ page }, 'Deny')
  await answer
  await page.getByRole('button', { name: 'Journal' }).click()
  await page.getByLabel('Event').fill('approval')
  await page.getByRole('cell', { name: 'approval', exact: true }).first().waitFor()
  await page.getByLabel('Event').fill('question')
  await page.getByLabel('Holds').fill('/usr/bin/git')
  await page.getByText('argv=["git","pu\\u202esh"]').first().waitFor()
  assert.doesNotMatch((await page.locator('table').textContent()) ?? '', /\u202e/)
  await page.getByLabel('Holds').fill('nothing like this')
  await page.getByText('No line fits.').waitFor()
})
