/** What takes minutes: attacks at full speed, whole hosts, and chance. One after another, so that each has the machine to itself. */
export const CAMPAIGN_FILES = [
  'e2e/campaign/**/*.campaign.ts',
  'e2e/chaos.test.ts',
  'e2e/fleet-chaos.test.ts',
  'e2e/rexd/fuzz.test.ts',
  'test/executor/local/many-runs.test.ts',
  'test/fs/race.test.ts',
]
