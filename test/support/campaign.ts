/** `npm run campaign` repeats randomised tests for minutes, and `npm test` for seconds. */
const inCampaign = process.env['X0X_TEST_CAMPAIGN'] === 'true'

export const longOrShort = (inCampaigns: number, inTests: number): number => (inCampaign ? inCampaigns : inTests)
