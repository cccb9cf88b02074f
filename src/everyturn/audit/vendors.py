"""Formats of the vendors' keys and tokens, as data.

Sources: the vendors' own pages, checked against the MIT rule set of gitleaks
(`config/gitleaks.toml`, 2026-07). Lengths are lower bounds here where vendors changed them. A
format without a prefix of its own is left to the rules that go by names. A pattern that starts with
an open class has a hint that starts with a literal: random text would keep it counting.
"""

from __future__ import annotations

from typing import Final

from everyturn.audit.rules import BOUNDARY, Rule


def _vendor(name: str, pattern: str, *, hint: str = "", check: str = "") -> Rule:
    return Rule(name=name, kind="vendor", pattern=pattern, hint=hint, check=check)


VENDORS: Final = (
    # This gateway's own API keys.
    _vendor(
        "everyturn_key",
        r"{B}(et_[a-z0-9][a-z0-9-]{0,62}_[A-Za-z0-9-]{43})",
        hint="et_[a-z0-9-]+_[A-Za-z0-9-]{24}",
    ),
    # Model providers.
    _vendor("anthropic_key", r"{B}(sk-ant-[A-Za-z0-9_-]{16,})"),
    _vendor("openrouter_key", r"{B}(sk-or-[A-Za-z0-9_-]{16,})"),
    _vendor("openai_key", r"{B}(sk-(?:proj|svcacct|admin|service)-[A-Za-z0-9_-]{16,})"),
    _vendor("langfuse_key", r"{B}(sk-lf-[0-9a-f-]{36})"),
    _vendor(
        "sk_key",
        r"{B}(sk-[A-Za-z0-9][A-Za-z0-9_-]{18,})",
        hint=BOUNDARY + "sk-[A-Za-z0-9][A-Za-z0-9_-]{18}",
        check="mixed",
    ),
    _vendor("groq_key", r"{B}(gsk_[A-Za-z0-9]{20,})"),
    _vendor("xai_key", r"{B}(xai-[A-Za-z0-9]{20,})"),
    _vendor("cerebras_key", r"{B}(csk-[a-z0-9]{24,})"),
    _vendor("perplexity_key", r"{B}(pplx-[A-Za-z0-9]{32,})"),
    _vendor("nvidia_key", r"{B}(nvapi-[A-Za-z0-9_-]{40,})"),
    _vendor("fireworks_key", r"{B}(fw_[A-Za-z0-9]{22,})", check="mixed"),
    _vendor("replicate_token", r"{B}(r8_[A-Za-z0-9]{36,})"),
    _vendor("huggingface_token", r"{B}((?:hf|api_org)_[A-Za-z0-9]{30,})"),
    _vendor("tavily_key", r"{B}(tvly-[A-Za-z0-9_-]{20,})"),
    _vendor("langsmith_key", r"{B}(lsv2_[a-z]{2}_[0-9a-f]{32}_[0-9a-f]{10})"),
    # Clouds.
    _vendor(
        "aws_secret_key",
        r"(?:AKIA|ASIA)[A-Z2-7]{16}[^A-Za-z0-9/+=]{1,4}(?:[A-Za-z_ ]{1,30}[^A-Za-z0-9/+=]{1,4})?"
        r"([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|\z)",
        hint=r"(?:AKIA|ASIA)[A-Z2-7]{16}",
    ),
    _vendor("aws_access_key", r"{B}((?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16})\b"),
    _vendor("google_api_key", r"{B}(AIza[A-Za-z0-9_-]{35})"),
    _vendor("google_oauth_token", r"{B}(ya29\.[A-Za-z0-9_-]{20,})"),
    _vendor("google_oauth_secret", r"{B}(GOCSPX-[A-Za-z0-9_-]{20,})"),
    _vendor(
        "azure_client_secret",
        r"{B}([A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34})",
        hint=r"[0-9]Q~",
    ),
    _vendor("alibaba_access_key", r"{B}(LTAI[A-Za-z0-9]{20})\b"),
    _vendor("digitalocean_token", r"{B}(do[opr]_v1_[0-9a-f]{64})"),
    _vendor("yandex_token", r"{B}((?:AQVN[A-Za-z0-9_-]{35,}|y[0-3]_[A-Za-z0-9_-]{50,}))"),
    _vendor("databricks_token", r"{B}(dapi[0-9a-f]{32})"),
    _vendor("vault_token", r"{B}(hv[sbr]\.[A-Za-z0-9_-]{24,})"),
    # Code hosting, packages, delivery.
    _vendor("github_token", r"{B}((?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}))"),
    _vendor("gitlab_token", r"{B}(gl(?:pat|dt|ptt|ft|imt|agent|oas|rt|soat|cbt|ffct)-[\w-]{20,})"),
    _vendor("atlassian_token", r"{B}(ATATT3[A-Za-z0-9_=-]{60,})"),
    _vendor("npm_token", r"{B}(npm_[A-Za-z0-9]{36,})"),
    _vendor("pypi_token", r"{B}(pypi-[A-Za-z0-9_-]{50,})"),
    _vendor("docker_token", r"{B}(dckr_pat_[A-Za-z0-9_-]{20,})"),
    _vendor("linear_key", r"{B}(lin_api_[A-Za-z0-9]{40})"),
    _vendor("notion_token", r"{B}(ntn_[A-Za-z0-9]{40,})"),
    _vendor("airtable_token", r"{B}(pat[A-Za-z0-9]{14}\.[0-9a-f]{64})"),
    _vendor("postman_key", r"{B}(PMAK-[0-9a-f]{24}-[0-9a-f]{34})"),
    _vendor("grafana_token", r"{B}(glsa_[A-Za-z0-9]{32}_[0-9a-f]{8})"),
    _vendor("age_key", r"{B}(AGE-SECRET-KEY-1[0-9A-Z]{58})"),
    # Messages and money.
    _vendor("slack_token", r"{B}(xox[abceoprs]-[A-Za-z0-9-]{10,})"),
    _vendor("slack_app_token", r"{B}(xapp-[0-9]-[A-Za-z0-9-]{20,})"),
    _vendor(
        "slack_webhook",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9_/+-]{20,})",
        hint=r"hooks\.slack\.com[\\/]+(?:services|workflows|triggers)[\\/]",
    ),
    _vendor(
        "discord_webhook",
        r"discord(?:app)?\.com/api/webhooks/([0-9]{17,20}/[A-Za-z0-9_-]{60,})",
        hint=r"discord(?:app)?\.com[\\/]+api[\\/]+webhooks",
    ),
    _vendor(
        "telegram_token", r"([0-9]{8,10}:AA[A-Za-z0-9_-]{32,34})", hint=r"[0-9]:AA[A-Za-z0-9_-]{32}"
    ),
    _vendor("twilio_key", r"{B}(SK[0-9a-f]{32})\b"),
    _vendor("sendgrid_key", r"{B}(SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64})"),
    _vendor("mailgun_key", r"{B}(key-[0-9a-f]{32})\b"),
    _vendor("stripe_key", r"{B}((?:[sr]k_(?:test|live|prod)_[A-Za-z0-9]{10,}))"),
    _vendor("stripe_webhook_secret", r"{B}(whsec_[A-Za-z0-9]{24,})"),
    _vendor("shopify_token", r"{B}(shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32})"),
    _vendor("square_token", r"{B}(sq0[a-z]{3}-[A-Za-z0-9_-]{22,})"),
    # More of the same.
    _vendor("together_key", r"{B}(tgp_v1_[A-Za-z0-9_-]{30,})"),
    _vendor("jina_key", r"{B}(jina_[0-9a-f]{32}[A-Za-z0-9_-]{20,})"),
    _vendor("pinecone_key", r"{B}(pcsk_[A-Za-z0-9_]{40,})"),
    _vendor("elevenlabs_key", r"{B}(sk_[0-9a-f]{48})"),
    _vendor("firecrawl_key", r"{B}(fc-[0-9a-f]{32})\b"),
    _vendor("runpod_key", r"{B}(rpa_[A-Z0-9]{30,}[a-z0-9]{0,8})"),
    _vendor("apify_token", r"{B}(apify_api_[A-Za-z0-9]{34,})"),
    _vendor(
        "zhipu_key",
        r"{B}([0-9a-f]{32}\.[A-Za-z0-9]{16})\b",
        hint=r"[0-9a-f]\.[A-Za-z0-9]{16}",
        check="mixed",
    ),
    _vendor(
        "bedrock_key",
        r"{B}((?:ABSK[A-Za-z0-9+/]{100,}|bedrock-api-key-[A-Za-z0-9+/=]{40,}))",
        hint=r"ABSK[A-Za-z0-9+/\\]{100}|bedrock-api-key-",
    ),
    _vendor(
        "aws_session_token",
        r"{B}((?:FwoGZXIvYXdz|IQoJb3JpZ2lu)[A-Za-z0-9+/=]{60,})",
        hint=r"FwoGZXIvYXdz|IQoJb3JpZ2lu",
    ),
    _vendor(
        "azure_openai_key", r"{B}([A-Za-z0-9]{52}JQQJ9[9D][A-Za-z0-9]{25,30})", hint=r"JQQJ9[9D]"
    ),
    _vendor("vk_token", r"{B}(vk1\.a\.[A-Za-z0-9_-]{60,})"),
    _vendor("yandex_iam_token", r"{B}(t1\.[A-Za-z0-9_-]{20,}={0,2}\.[A-Za-z0-9_-]{86})"),
    _vendor("cloudflare_ca_key", r"{B}(v1\.0-[0-9a-f]{24}-[0-9a-f]{146})"),
    _vendor(
        "doppler_token",
        r"{B}(dp\.(?:pt|ct|st|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44})",
    ),
    _vendor("dynatrace_token", r"{B}(dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64})"),
    _vendor(
        "flyio_token",
        r"{B}((?:fo1_[A-Za-z0-9_-]{43}|fm[12][ar]?_[A-Za-z0-9+/]{100,}={0,3}))",
        hint=r"fo1_[A-Za-z0-9_-]{43}|fm[12][ar]?_[A-Za-z0-9+/\\]{100}",
    ),
    _vendor("heroku_key", r"{B}(HRKU-AA[A-Za-z0-9_-]{58})"),
    _vendor(
        "terraform_token",
        r"{B}([A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9=_-]{60,70})",
        hint=r"\.atlasv1\.",
    ),
    _vendor(
        "openshift_token",
        r"{B}(sha256~[A-Za-z0-9_-]{43})",
        hint=r"sha256(?:~|\\+u007[eE])[A-Za-z0-9_-]{43}",
    ),
    _vendor("planetscale_token", r"{B}(pscale_(?:tkn|oauth|pw)_[A-Za-z0-9=._-]{32,64})"),
    _vendor("neon_key", r"{B}(napi_[a-z0-9]{40,})"),
    _vendor("supabase_key", r"{B}((?:sbp_[0-9a-f]{40}|sb_secret_[A-Za-z0-9_-]{20,}))"),
    _vendor("netlify_token", r"{B}(nfp_[A-Za-z0-9]{36,})"),
    _vendor("vercel_blob_token", r"{B}(vercel_blob_rw_[A-Za-z0-9]{16}_[A-Za-z0-9]{30})"),
    _vendor(
        "tailscale_key",
        r"{B}(tskey-(?:auth|api|client|scim|webhook)-[A-Za-z0-9]{10,}-[A-Za-z0-9]{20,})",
    ),
    _vendor("pulumi_token", r"{B}(pul-[0-9a-f]{40})"),
    _vendor("prefect_key", r"{B}(pnu_[A-Za-z0-9]{36})"),
    _vendor("infracost_key", r"{B}(ico-[A-Za-z0-9]{32})\b"),
    _vendor("scalingo_token", r"{B}(tk-us-[A-Za-z0-9_-]{48})"),
    _vendor("render_key", r"{B}(rnd_[A-Za-z0-9]{28,})"),
    _vendor("maxmind_key", r"{B}([A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk)", hint=r"_mmk"),
    _vendor("gitlab_runner_token", r"{B}(GR1348941[A-Za-z0-9_-]{20})"),
    _vendor("sourcegraph_token", r"{B}(sgp_(?:(?:[0-9a-fA-F]{16}|local)_)?[0-9a-fA-F]{40})"),
    _vendor("buildkite_token", r"{B}(bk(?:ua|ca|pt)_[0-9a-f]{40})"),
    _vendor("circleci_token", r"{B}(CCIP(?:AT|RJ)_[A-Za-z0-9]{22}_[0-9a-f]{40})"),
    _vendor("sonar_token", r"{B}(sq[apu]_[0-9a-f]{40})"),
    _vendor("docker_org_token", r"{B}(dckr_oat_[A-Za-z0-9_-]{20,})"),
    _vendor("rubygems_key", r"{B}(rubygems_[0-9a-f]{48})"),
    _vendor("nuget_key", r"{B}(oy2[a-z0-9]{43})\b"),
    _vendor("crates_token", r"{B}(cio[A-Za-z0-9]{32})\b", check="mixed"),
    _vendor("clojars_token", r"{B}(CLOJARS_[0-9a-f]{60})"),
    _vendor("artifactory_key", r"{B}((?:AKCp[A-Za-z0-9]{69}|cmVmd[A-Za-z0-9]{59}))\b"),
    _vendor("octopus_key", r"{B}(API-[A-Z0-9]{26})\b", check="mixed"),
    _vendor("harness_token", r"{B}([ps]at\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20})"),
    _vendor("postman_collection_key", r"{B}(PMAT-[A-Z0-9]{26})"),
    _vendor("readme_key", r"{B}(rdme_[a-z0-9]{70})"),
    _vendor("typeform_token", r"{B}(tfp_[A-Za-z0-9_-]{40,})"),
    _vendor("figma_token", r"{B}(fig[dour]_[A-Za-z0-9_-]{40,})"),
    _vendor("frameio_token", r"{B}(fio-u-[A-Za-z0-9_=-]{64})"),
    _vendor("contentful_token", r"{B}(CFPAT-[A-Za-z0-9_-]{40,})"),
    _vendor(
        "hubspot_token", r"{B}(pat-(?:na|eu)[0-9]-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    ),
    _vendor(
        "launchdarkly_key",
        r"{B}((?:api|sdk|mob)-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})",
    ),
    _vendor("adobe_secret", r"{B}(p8e-[A-Za-z0-9_-]{32})"),
    _vendor(
        "onepassword_key",
        r"{B}(A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3})",
    ),
    _vendor("onepassword_token", r"{B}(ops_eyJ[A-Za-z0-9+/_-]{100,})", hint=r"ops_eyJ"),
    _vendor("intra42_secret", r"{B}(s-s4t2(?:ud|af)-[0-9a-f]{64})"),
    _vendor("settlemint_token", r"{B}(sm_[aps]at_[A-Za-z0-9]{16})\b"),
    _vendor(
        "grafana_cloud_token", r"{B}(glc_[A-Za-z0-9+/]{32,}={0,3})", hint=r"glc_[A-Za-z0-9+/\\]{32}"
    ),
    _vendor(
        "sentry_token",
        r"{B}((?:sntrys_eyJ[A-Za-z0-9+/=_-]{40,}|sntryu_[0-9a-f]{64}))",
        hint=r"sntrys_eyJ|sntryu_",
    ),
    _vendor("newrelic_key", r"{B}((?:NRAK|NRII|NRRA|NRJS|NRSP)-[A-Za-z0-9_-]{19,42})"),
    _vendor("posthog_key", r"{B}(ph[xs]_[A-Za-z0-9]{40,})"),
    _vendor("mapbox_token", r"{B}(sk\.eyJ[A-Za-z0-9_-]{40,}\.[A-Za-z0-9_-]{20,})"),
    _vendor("facebook_token", r"{B}(EAA[A-Z][A-Za-z0-9]{90,})"),
    _vendor(
        "discord_token",
        r"{B}([MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40})",
        hint=r"\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27}",
        check="mixed",
    ),
    _vendor("dropbox_token", r"{B}(sl\.(?:u\.)?[A-Za-z0-9_-]{120,})"),
    _vendor("resend_key", r"{B}(re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24})"),
    _vendor("sendinblue_key", r"{B}(xkeysib-[0-9a-f]{64}-[A-Za-z0-9]{16})"),
    _vendor("mailchimp_key", r"{B}([0-9a-f]{32}-us[0-9]{1,2})\b", hint=r"[0-9a-f]-us[0-9]"),
    _vendor("easypost_key", r"{B}(EZ[AT]K[A-Za-z0-9]{54})\b"),
    _vendor("shippo_token", r"{B}(shippo_(?:live|test)_[0-9a-fA-F]{40})"),
    _vendor("duffel_token", r"{B}(duffel_(?:test|live)_[A-Za-z0-9_=-]{43})"),
    _vendor("flutterwave_key", r"{B}(FLW(?:SECK|PUBK)(?:_TEST)?-[0-9a-z]{12,34}(?:-X)?)"),
    _vendor(
        "plaid_token",
        r"{B}(access-(?:sandbox|development|production)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})",
    ),
    _vendor("razorpay_key", r"{B}(rzp_(?:live|test)_[A-Za-z0-9]{14,})"),
    _vendor("square_access_token", r"{B}(EAAA[A-Za-z0-9_-]{58,60})"),
    _vendor(
        "braintree_token",
        r"(access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32})",
        hint=r"access_token(?:\$|\\+u0024)(?:production|sandbox)",
    ),
    _vendor("xprv_key", r"{B}(xprv[1-9A-HJ-NP-Za-km-z]{107})\b"),
    _vendor("nostr_key", r"{B}(nsec1[02-9ac-hj-np-z]{58})\b"),
    _vendor(
        "teams_webhook",
        r"webhook\.office\.com/webhookb2/([A-Za-z0-9@/-]{60,})",
        hint=r"webhook\.office\.com[\\/]+webhookb2",
    ),
)
"""Formats of keys and tokens, the most telling first."""
