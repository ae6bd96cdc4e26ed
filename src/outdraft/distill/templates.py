"""Words that made prompts are put together from, category by category.

OPENINGS are beginnings of a user's turn that the target goes on with by itself. FORMS ask about a
TOPIC. AROUND_TEXT and AROUND_CODE take a document or a piece of code that the target wrote.
"""

from __future__ import annotations

OPENINGS: dict[str, tuple[str, ...]] = {
    "chat": (
        "I've been", "My friend", "How do I", "What should I", "Can you help me", "I'm trying to",
        "Give me", "Is it normal that", "What's the best way to", "Help me plan", "I just moved",
        "Explain in simple words", "We're having", "My boss", "I need advice on", "Hi! I'd like",
        "What are some", "I can't decide", "Could you suggest", "List five", "Why does",
        "Write a short message to", "My kids", "I feel", "Tell me about", "What do you think of",
    ),
    "code": (
        "Write a Python function that", "Write a Python function `", "Write a function in Go",
        "Write a Rust function", "In JavaScript, write", "Write a TypeScript", "Write a SQL query",
        "Write a bash script that", "Implement a", "Write a Python class", "In Java, write",
        "Write a C function", "Write unit tests for", "How do I sort",
        "Give me a regular expression",
        "Write a small command-line tool", "Write a C++ class", "Python: read a CSV file and",
        "Write a recursive function", "Create a React component", "Write a decorator that",
        "Using only the standard library, write", "Write an async function that", "Write code that",
    ),
    "creative": (
        "Write a short story about", "Write a poem about", "Compose a limerick", "Write a dialogue",
        "Describe a place", "Invent a", "Write the opening paragraph of", "Write song lyrics about",
        "Write a bedtime story", "Make up a legend", "Write a letter from", "Write a monologue",
        "Write a scene in which", "A haiku about", "Write a product description for",
    ),
    "qa": (
        "Question: What", "Which", "When did", "Who", "What is the difference between", "Why do",
        "How many", "According to the text below,", "Read the passage and answer:", "What does",
        "Passage:", "In one sentence, what", "Where", "What causes",
    ),
    "extraction": (
        "Extract the names", "List all dates mentioned", "Return a JSON object with the fields",
        "Extract the following fields as JSON", "From the text below, extract",
        "Turn this into a table:",
        "Find every", "Which people and places are mentioned",
    ),
    "summarization": (
        "Summarize the following text", "Summarize this article", "Give me the main points of",
        "In two sentences, summarize", "Write a short summary of", "TL;DR of this email:",
        "Condense the following report", "Write a headline for",
    ),
    "translation": (
        "Translate the following into German:", "Translate this into French:",
        "Translate to Spanish:",
        "Translate the following sentence into English:", "How do you say",
        "Put this into Italian:",
    ),
}  # fmt: skip

TOPICS = (
    "sleep", "bread baking", "rivers", "a small garden", "job interviews", "electric cars", "bees",
    "the moon", "learning a language", "volcanoes", "saving money", "old bridges", "chess", "tea",
    "a leaking tap", "marathon training", "vaccines", "public libraries", "solar panels", "owls",
    "a family reunion", "photosynthesis", "remote work", "the Roman Empire", "jazz", "recycling",
    "a lost dog", "database indexes", "mountain weather", "stage fright", "coffee", "coral reefs",
    "first aid", "train travel", "a birthday party", "black holes", "neighbours", "earthquakes",
    "a school play", "internet privacy", "knitting", "wild mushrooms", "headaches",
    "the printing press",
    "moving house", "hash tables", "ice cream", "lighthouses", "a power cut", "stretching",
    "inflation",
    "camping in the rain", "whales", "a job in a bakery", "memory", "street music", "robots",
    "honesty",
    "a delayed flight", "compost", "antibiotics", "sailing", "a noisy office", "winter birds",
    "maps",
)  # fmt: skip

FORMS: dict[str, tuple[str, ...]] = {
    "chat": (
        "What should everybody know about {topic}?",
        "Give me five practical tips on {topic}.",
        "Explain {topic} to a ten-year-old.",
        "I have to give a short talk about {topic} tomorrow. What could I say?",
        "What are common mistakes with {topic}, and how do I avoid them?",
        "Write a friendly email to a colleague about {topic}.",
        "Name the pros and cons of {topic} in a short list.",
        "How do I get started with {topic}? I have about an hour a week.",
        "What questions should I ask an expert on {topic}?",
    ),
    "creative": (
        "Write a short story about {topic}.",
        "Write a poem of eight lines about {topic}.",
        "Write a funny dialogue between two strangers about {topic}.",
        "Describe {topic} as if you saw it for the first time.",
    ),
    "document": (
        "Write a news article of about 150 words on {topic}.",
        "Write a short report on {topic} with names, dates and numbers.",
        "Write an email from a customer who complains about {topic}.",
        "Write a diary entry in which {topic} plays a part.",
        "Write the transcript of a short interview about {topic}.",
        "Write a notice for the residents of a building that has to do with {topic}.",
        "Write minutes of a meeting about {topic}, with three decisions.",
        "Write two paragraphs of an encyclopedia entry on {topic}.",
        "Write a product review that mentions {topic}.",
    ),
    "code": (
        "Write a Python program that simulates {topic}. Keep it under 40 lines.",
        "Write a Python class that models {topic}, with three methods and a short example.",
        "Write a SQL schema with two tables for an application about {topic}.",
        "Write a JavaScript function that validates a form about {topic}.",
        "Write a small HTML page about {topic}.",
    ),
}

AROUND_TEXT: dict[str, tuple[str, ...]] = {
    "summarization": (
        "Summarize the following text in one sentence.\n\n{text}",
        "Summarize this in two or three sentences:\n\n{text}",
        "Give me the key points of the text below as bullets.\n\n{text}",
        "Write a headline and one sentence of summary for this text.\n\n{text}",
        "I have no time to read this. What does it say, in at most 40 words?\n\n{text}",
        "Condense the following to a third of its length, keeping all names and numbers:\n\n{text}",
        "{text}\n\nPlease sum this up for a newsletter.",
        "Explain to a child what this text is about.\n\n{text}",
        "What is the main message here? Answer with a short paragraph.\n\n{text}",
        "Write an abstract (max. 60 words) of the following.\n\n{text}",
    ),
    "qa": (
        "{text}\n\nQuestion: What is this text mainly about?",
        "Answer from the text only: who or what is at its centre, and why?\n\n{text}",
        "{text}\n\nWhich numbers or dates are mentioned?",
        "Read the passage, then say which claim in it is the most surprising.\n\n{text}",
        "Passage: {text}\n\nWhat would the author recommend?",
        "What reason does the text give? Quote the sentence.\n\n{text}",
    ),
    "extraction": (
        "Extract all names of people and places from this text as JSON.\n\n{text}",
        'Return {{"title": "...", "topic": "...", "keywords": []}} for this text.\n\n{text}',
        "List every date, number and amount in the following text.\n\n{text}",
        "Turn the text into a table with the columns who, what, when.\n\n{text}",
        'Classify: return {{"sentiment": "...", "language": "..."}}.\n\n{text}',
    ),
    "translation": (
        "Translate into German:\n\n{text}",
        "Translate the following text into French.\n\n{text}",
        "Please put this into Spanish:\n\n{text}",
        "Translate into Italian, keeping the tone.\n\n{text}",
        "{text}\n\nCan you translate this into Dutch?",
    ),
    "chat": (
        "Rewrite this so that it sounds friendlier:\n\n{text}",
        "Correct the spelling and grammar, change nothing else:\n\n{text}",
        "Make this shorter and more formal.\n\n{text}",
        "Reply politely to this message:\n\n{text}",
    ),
}

AROUND_CODE: dict[str, tuple[str, ...]] = {
    "code_edit": (
        "Add type hints and docstrings to this code. Return the whole file.\n\n{text}",
        "Rename the variables so that they say what they hold. Send the full code.\n\n{text}",
        "Add error handling for bad input to this code and give me all of it back.\n\n{text}",
        "There may be a bug in here. Fix it and return the complete code.\n\n{text}",
        "Split the longest function in two. The whole code, please.\n\n{text}",
        "Add a short test for this code at its end; keep the rest as it is.\n\n{text}",
        "Make this read its settings from command-line arguments. Whole file.\n\n{text}",
        "{text}\n\nRewrite this with comments that explain each step.",
    ),
    "code": (
        "Explain what this code does.\n\n{text}",
        "Review this code: name three weaknesses.\n\n{text}",
        "Translate this into another programming language of your choice.\n\n{text}",
    ),
}
