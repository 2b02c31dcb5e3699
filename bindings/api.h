// What libfrostline.so exports.
#pragma once

#define FROSTLINE_API __attribute__((visibility("default")))
/// Inside of what is exported, what is not.
#define FROSTLINE_HIDDEN __attribute__((visibility("hidden")))
