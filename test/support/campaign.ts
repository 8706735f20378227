/** `npm run campaign`: what is repeated by chance has minutes, and `npm test` seconds. */
const inCampaign = process.env['X0X_TEST_CAMPAIGN'] === 'true'

export const longOrShort = (inCampaigns: number, inTests: number): number => (inCampaign ? inCampaigns : inTests)
