//! The page's files, which are in this program: nothing is fetched from elsewhere.

use crate::reply::Reply;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

const INDEX: &str = include_str!("page/index.html");
const LOGIN: &str = include_str!("page/login.html");
/// Where the login page says why it is there.
const REASON: &str = "<!--reason-->";

const FILES: [(&str, &str, &str); 18] = [
    ("/", HTML, INDEX),
    ("/page/page.css", STYLE, include_str!("page/page.css")),
    ("/page/page.js", SCRIPT, include_str!("page/page.js")),
    ("/page/format.js", SCRIPT, include_str!("page/format.js")),
    ("/page/flows.js", SCRIPT, include_str!("page/flows.js")),
    ("/page/objects.js", SCRIPT, include_str!("page/objects.js")),
    ("/page/viewer.js", SCRIPT, include_str!("page/viewer.js")),
    ("/page/query.js", SCRIPT, include_str!("page/query.js")),
    ("/page/queries.js", SCRIPT, include_str!("page/queries.js")),
    ("/page/chart.js", SCRIPT, include_str!("page/chart.js")),
    ("/page/plot.js", SCRIPT, include_str!("page/plot.js")),
    ("/page/colours.js", SCRIPT, include_str!("page/colours.js")),
    ("/page/terrace.svg", "image/svg+xml", include_str!("page/terrace.svg")),
    ("/page/vendor/d3-color.min.js", SCRIPT, include_str!("page/vendor/d3-color.min.js")),
    ("/page/vendor/d3-interpolate.min.js", SCRIPT, include_str!("page/vendor/d3-interpolate.min.js")),
    ("/page/vendor/d3-scale-chromatic.min.js", SCRIPT, include_str!("page/vendor/d3-scale-chromatic.min.js")),
    ("/page/vendor/uPlot.iife.min.js", SCRIPT, include_str!("page/vendor/uPlot.iife.min.js")),
    ("/page/vendor/uPlot.min.css", STYLE, include_str!("page/vendor/uPlot.min.css")),
];

pub fn file(path: &str) -> Option<Reply> {
    let (_, kind, text) = FILES.iter().find(|(name, ..)| *name == path)?;
    Some(Reply::entity(kind, *text))
}

/// What the login page is made of, which says nothing of the root.
pub fn is_public(path: &str) -> bool {
    path == "/page/page.css" || path == "/page/terrace.svg"
}

pub fn login(reason: &str) -> Reply {
    Reply::new(HTML, LOGIN.replace(REASON, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_page_names_is_there_and_nothing_is_inline() {
        for (name, _, text) in FILES.iter().filter(|(name, ..)| !name.contains("vendor")) {
            let quoted = text.split(['"', '\'']).filter(|word| word.starts_with("/page/"));
            for word in quoted {
                assert!(file(word).is_some(), "{name} names {word}");
            }
            assert!(!text.contains("<script>") && !text.contains("style=\""), "{name}");
            assert!(!text.contains("https://") || name.ends_with(".svg"), "{name} names another site");
        }
        assert!(LOGIN.contains(REASON));
    }
}
