// An OpenAI-compatible server on 127.0.0.1, based on node-llama-cpp: `node server.mjs MODEL.gguf`, in the folder of its packages.
// It prints {"port": N} when it is ready, and ends when its standard input is closed. `tools` are rendered with the model's
// template. Calls are never parsed: `content` is the raw text of the model. `grammar` is GBNF and applies from the first token.
import http from "node:http";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const packages = createRequire(process.cwd() + "/");
const load = (name) => import(pathToFileURL(packages.resolve(name)));
const {getLlama, LlamaCompletion, LlamaLogLevel} = await load("node-llama-cpp");
const {Template} = await load("@huggingface/jinja");

const llama = await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: 1});
const model = await llama.loadModel({modelPath: process.argv[2]});
const context = await model.createContext({contextSize: 4096, threads: 1});
const completion = new LlamaCompletion({contextSequence: context.getSequence()});
const template = new Template(model.fileInfo.metadata.tokenizer.chat_template);
const grammars = new Map();
let last = Promise.resolve(); // one reply at a time

const flat = (content) => typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("");

async function reply(body) {
    const prompt = template.render({
        messages: body.messages.map((message) => ({...message, content: flat(message.content)})),
        tools: body.tools?.length ? body.tools : undefined, add_generation_prompt: true, bos_token: "", eos_token: ""
    });
    if (body.grammar && !grammars.has(body.grammar))
        grammars.set(body.grammar, await llama.createGrammar({grammar: body.grammar}));
    let written = 0;
    const tokens = model.tokenize(prompt, true);
    const made = await completion.generateCompletionWithMeta(tokens, {
        maxTokens: body.max_completion_tokens ?? body.max_tokens ?? 512, temperature: body.temperature ?? 0,
        repeatPenalty: false, grammar: grammars.get(body.grammar), onToken: (some) => { written += some.length; }
    });
    const finish = made.metadata.stopReason === "maxTokens" ? "length" : "stop";
    return {
        id: "chatcmpl-" + Date.now(), object: "chat.completion", created: Math.floor(Date.now() / 1000), model: body.model,
        choices: [{index: 0, message: {role: "assistant", content: made.response}, finish_reason: finish}],
        usage: {prompt_tokens: tokens.length, completion_tokens: written, total_tokens: tokens.length + written}
    };
}

const server = http.createServer(async (request, response) => {
    const say = (status, value) => {
        response.writeHead(status, {"content-type": "application/json"});
        response.end(JSON.stringify(value));
    };
    try {
        let text = "";
        for await (const piece of request) text += piece;
        if (request.method !== "POST" || request.url !== "/v1/chat/completions")
            return say(404, {error: {message: "only POST /v1/chat/completions is supported"}});
        const body = JSON.parse(text);
        if (body.stream) return say(400, {error: {message: "replies are not streamed"}});
        const mine = last.then(() => reply(body));
        last = mine.catch(() => {});
        say(200, await mine);
    } catch (error) {
        say(400, {error: {message: String(error)}});
    }
});
server.listen(0, "127.0.0.1", () => console.log(JSON.stringify({port: server.address().port})));
process.stdin.resume().on("end", () => process.exit(0));
