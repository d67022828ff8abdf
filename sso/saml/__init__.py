"""SAML 2.0: messages, signatures and metadata. It knows neither clients nor the database.

"Core", "Bindings", "Profiles" and "Metadata" are the parts of the standard (OASIS, March 2005).
Imported late, because `lxml` and `signxml` take memory that few installations need.
"""
