// The official Node client: what it sees of answers, streams, tools and failures, as one JSON text.
// usage: node openai.mjs BASE_URL

import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "sk-test-FAKE", maxRetries: 0 });
const messages = [{ role: "user", content: "Share 84 pears among seven people." }];
const tools = ["weigh_fruit", "share_out"].map((name) => ({
  type: "function",
  function: { name, parameters: { type: "object" } },
}));
const { completions } = client.chat;

async function streamed(model) {
  const said = { content: "", reasoning: "", usage: null, finish: null };
  const options = { include_usage: true };
  const stream = await completions.create({ model, messages, stream: true, stream_options: options });
  for await (const chunk of stream) {
    for (const { delta, finish_reason } of chunk.choices) {
      said.content += delta.content ?? "";
      said.reasoning += delta.reasoning_content ?? "";
      said.finish = finish_reason ?? said.finish;
    }
    said.usage = chunk.usage ?? said.usage;
  }
  return said;
}

async function failure(ask) {
  try {
    await ask();
  } catch (error) {
    return {
      kind: error.constructor.name,
      isApiError: error instanceof OpenAI.APIError,
      status: error.status ?? null,
      code: error.code ?? null,
      retryAfter: error.headers?.get("retry-after") ?? null,
    };
  }
  return null;
}

const whole = await completions.create({ model: "deepseek", messages });
const calling = await completions.create({ model: "tools", messages, tools });
const helper = completions.stream({ model: "tools", messages, tools });
const assembled = await helper.finalMessage();
const answered = [
  ...messages,
  calling.choices[0].message,
  ...calling.choices[0].message.tool_calls.map(({ id }) => ({
    role: "tool",
    tool_call_id: id,
    content: "12",
  })),
];
const { data, response } = await completions
  .create({ model: "deepseek", messages: answered })
  .withResponse();

console.log(
  JSON.stringify({
    whole: whole.choices[0].message,
    usage: whole.usage,
    streamed: await streamed("deepseek"),
    calls: calling.choices[0].message.tool_calls,
    assembled: assembled.tool_calls,
    after: data.choices[0].message.content,
    turnId: response.headers.get("x-everyturn-turn-id"),
    models: (await client.models.list()).data.map(({ id }) => id),
    limited: await failure(() => completions.create({ model: "error-429", messages })),
    unknown: await failure(() => completions.create({ model: "nobody", messages })),
    cut: await failure(() => streamed("cut-clean")),
    broken: await failure(() => streamed("error-mid")),
  }),
);
