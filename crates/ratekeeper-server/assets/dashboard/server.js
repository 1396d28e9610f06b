// The calls of the server. The token is in this tab alone, and goes in a header, never in an address.

const PLACE = "ratekeeper-token";
const PATIENCE_MS = 10_000;

/** The server answered, and not with what was asked for. */
export class Refused extends Error {
  constructor(status, detail, retryAfter) {
    super(detail);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** The server did not answer. */
export class Away extends Error {}

export const token = {
  get: () => sessionStorage.getItem(PLACE) ?? "",
  set: (text) => sessionStorage.setItem(PLACE, text),
  forget: () => sessionStorage.removeItem(PLACE),
};

/** Makes a call: with a body a POST, without one a GET. */
export async function call(path, body) {
  const headers = {};
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response, answer;
  try {
    response = await fetch(new URL(path, document.baseURI), {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    answer = await response.json();
  } catch (error) {
    // A token with letters that no header can have is not sent.
    if (error instanceof TypeError && /headers/i.test(error.message)) throw new Refused(401, "A token has printable ASCII characters only.");
    throw new Away(error.message);
  }
  if (!response.ok) {
    throw new Refused(response.status, answer.detail ?? `The server answered ${response.status}.`, response.headers.get("Retry-After"));
  }
  return answer;
}
