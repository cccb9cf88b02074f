// The `ai` package with `@ai-sdk/openai-compatible`: what it sees, as one JSON text.
// usage: node ai.mjs BASE_URL

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, streamText, tool } from "ai";

const provider = createOpenAICompatible({
  name: "everyturn",
  baseURL: process.argv[2],
  apiKey: "sk-test-FAKE",
  includeUsage: true,
});
const ask = (model) => ({
  model: provider(model),
  prompt: "Share 84 pears among seven people.",
  maxRetries: 0,
});
const open = tool({ inputSchema: jsonSchema({ type: "object" }) });
const tools = { weigh_fruit: open, share_out: open };
const named = (calls) =>
  calls.map(({ toolCallId, toolName, input }) => ({ id: toolCallId, name: toolName, input }));

async function streamed(model, more = {}) {
  const said = { text: "", reasoning: "", error: null };
  const result = streamText({ ...ask(model), ...more, onError: () => {} });
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") said.text += part.text;
    if (part.type === "reasoning-delta") said.reasoning += part.text;
    if (part.type === "error") said.error = part.error?.message ?? String(part.error);
  }
  if (said.error !== null) return said;
  said.finish = await result.finishReason;
  said.tokens = (await result.usage).totalTokens;
  said.calls = named(await result.toolCalls);
  return said;
}

async function failure(model) {
  try {
    await generateText(ask(model));
  } catch (error) {
    return {
      kind: error.name,
      status: error.statusCode ?? null,
      code: error.data?.error?.code ?? null,
      retryAfter: error.responseHeaders?.["retry-after"] ?? null,
    };
  }
  return null;
}

const whole = await generateText(ask("deepseek"));
const calling = await generateText({ ...ask("tools"), tools });
const results = calling.toolCalls.map(({ toolCallId, toolName }) => ({
  type: "tool-result",
  toolCallId,
  toolName,
  output: { type: "text", value: "12" },
}));
const after = await generateText({
  model: provider("deepseek"),
  maxRetries: 0,
  messages: [
    { role: "user", content: "Share 84 pears among seven people." },
    ...calling.response.messages,
    { role: "tool", content: results },
  ],
});

console.log(
  JSON.stringify({
    whole: { text: whole.text, reasoning: whole.reasoningText, tokens: whole.usage.totalTokens },
    calls: named(calling.toolCalls),
    after: after.text,
    streamed: await streamed("deepseek"),
    streamedCalls: await streamed("tools", { tools }),
    limited: await failure("error-429"),
    unknown: await failure("nobody"),
    cut: await streamed("cut-clean"),
    broken: await streamed("error-mid"),
  }),
);
